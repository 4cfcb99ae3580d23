"""The connection to Redis: what Redis says in its own words becomes an error of ours that says what to do."""

from __future__ import annotations

import pytest
import redis

from producers.connection import connect, mapped_errors, safe_location
from producers.errors import SettingsError, StreamAway, StreamFull, StreamUnavailable
from producers.settings import Settings

SETTINGS = Settings(redis_url="redis://user:hunter2@cache.example:6379/0")


@pytest.mark.parametrize(
    ("raised", "mapped", "said"),
    [
        (redis.exceptions.ConnectionError("Connection refused"), StreamAway, "start it again"),
        (redis.exceptions.TimeoutError("timed out"), StreamAway, "start it again"),
        (redis.exceptions.OutOfMemoryError("used memory > maxmemory"), StreamFull, "raise its maxmemory"),
        (redis.exceptions.ReadOnlyError("You can't write against a read only replica."), StreamAway, "refuses"),
        (redis.exceptions.AuthenticationError("invalid password"), StreamUnavailable, "invalid password"),
        (redis.exceptions.NoPermissionError("no permissions to run xadd"), StreamUnavailable, "no permissions"),
        (redis.exceptions.ResponseError("MISCONF Errors writing to the AOF file"), StreamAway, "MISCONF"),
        (redis.exceptions.ResponseError("WRONGTYPE Operation against a key"), StreamUnavailable, "WRONGTYPE"),
    ],
)
def test_each_error_of_redis_is_one_of_ours_and_names_the_address(
    raised: Exception, mapped: type[Exception], said: str
) -> None:
    with pytest.raises(mapped) as caught, mapped_errors(SETTINGS):
        raise raised
    assert caught.type is mapped
    assert said in str(caught.value)
    assert "cache.example:6379" in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_only_the_embedded_redis_is_started_by_up() -> None:
    with pytest.raises(StreamAway, match="start `scope-recall up` for this data dir"), mapped_errors(Settings()):
        raise redis.exceptions.ConnectionError("Connection refused")


def test_the_command_that_redis_py_puts_before_an_error_of_a_pipeline_is_left_out() -> None:
    pipeline = redis.Redis().pipeline()
    refused = redis.exceptions.ResponseError("MISCONF Errors writing to the AOF file")
    pipeline.annotate_exception(refused, 1, ("XADD", "stream", "*", "event", b'{"content":"a secret"}'))
    assert "secret" in str(refused)
    with pytest.raises(StreamAway) as caught, mapped_errors(SETTINGS):
        raise refused
    assert "secret" not in str(caught.value)
    assert "refuses: MISCONF" in str(caught.value)


def test_a_url_that_is_none_is_a_wrong_setting() -> None:
    with pytest.raises(SettingsError, match="redis_url"):
        connect(Settings(redis_url="redis://host:port/0"))


def test_an_address_without_a_password_is_shown_as_it_is() -> None:
    assert safe_location(Settings(redis_url="unix:///run/redis.sock")) == "unix:///run/redis.sock"
