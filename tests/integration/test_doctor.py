"""What the doctor finds in a real Redis that is set to lose turns, and that its advice is what cures it."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator

import pytest
import redis

from producers.connection import connect
from producers.settings import Settings
from workers.health import Check, checks

pytestmark = pytest.mark.integration


@pytest.fixture
def client(live_settings: Settings) -> Iterator[redis.Redis]:
    with connect(live_settings) as client:
        yield client


def found(settings: Settings, name: str) -> Check:
    (check,) = [check for check in checks(settings) if check.name == name]
    return check


@pytest.mark.parametrize(
    ("setting", "value", "name", "ok"),
    [
        ("maxmemory-policy", "allkeys-lru", "redis eviction", False),
        ("appendonly", "no", "redis persistence", False),
        ("appendfsync", "no", "redis persistence", None),
        ("maxmemory", "2mb", "redis memory", None),
    ],
)
def test_a_setting_that_loses_turns_is_found_and_the_advice_cures_it(
    live_settings: Settings, client: redis.Redis, setting: str, value: str, name: str, ok: bool | None
) -> None:
    if setting == "maxmemory":
        client.set("filler", "x" * (1 << 20))
    client.config_set(setting, value)
    check = found(live_settings, name)
    assert check.ok is ok
    advised = re.match(r"CONFIG SET (\S+) (\w+)", check.advice)
    if advised:
        client.config_set(*advised.groups())
    else:
        assert check.advice.startswith("raise maxmemory")
        client.config_set("maxmemory", "1gb")
    assert found(live_settings, name).ok is True
    deadline = time.monotonic() + 20
    while _writes_first_file(client):  # until then Redis does not let itself be stopped
        assert time.monotonic() < deadline
        time.sleep(0.02)


def _writes_first_file(client: redis.Redis) -> bool:
    state = client.info("persistence")
    return bool(state["aof_rewrite_in_progress"] or state["aof_rewrite_scheduled"])


@pytest.mark.parametrize(("ahead", "ok"), [(0.0, True), (-90.0, None), (90.0, None)])
def test_a_host_whose_clock_differs_from_that_of_redis_is_told(
    live_settings: Settings, client: redis.Redis, monkeypatch: pytest.MonkeyPatch, ahead: float, ok: bool | None
) -> None:
    real = time.time
    monkeypatch.setattr("workers.health.time.time", lambda: real() + ahead)
    check = found(live_settings, "clock")
    assert check.ok is ok
    assert abs(float(check.found.removesuffix(" s")) + ahead) < 1
    assert ("NTP" in check.advice) is (ok is None)


def test_a_redis_that_refuses_config_is_still_judged(live_settings: Settings, client: redis.Redis) -> None:
    client.acl_setuser("restricted", enabled=True, nopass=True, keys=["*"], categories=["+@all"], commands=["-config"])
    client.config_set("maxmemory-policy", "allkeys-lru")
    url = f"unix://restricted:any@{live_settings.redis_socket}"
    restricted = live_settings.model_copy(update={"redis_url": url})
    assert found(restricted, "redis persistence").found == "AOF on"
    assert found(restricted, "redis eviction").ok is False
