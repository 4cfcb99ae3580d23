"""The embedded Redis, with the real server."""

from __future__ import annotations

import os
import signal
import stat
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import redis

from producers.errors import NotReady, UsageError
from producers.settings import Settings, load_settings
from workers.health import checks
from workers.supervision import redis_server
from workers.supervision.process import Process, end, spawn
from workers.supervision.redis_server import (
    embedded_redis,
    find_server,
    prepare,
    redis_dir,
    redis_log,
    server_argv,
    wait_until_ready,
)

pytestmark = pytest.mark.integration


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return load_settings(data_dir=tmp_path)


def _client(settings: Settings) -> redis.Redis:
    return redis.Redis.from_url(settings.redis_location)


@contextmanager
def _server(settings: Settings, *flags: str) -> Iterator[Process]:
    """A server that nobody holds a lock for, like one whose supervisor was killed."""
    process = spawn([*prepare(settings), *flags], redis_log(settings))
    try:
        wait_until_ready(settings, process)
        yield process
    finally:
        end([process], grace=5)


def test_it_listens_on_a_private_socket_only_and_is_set_for_durability(settings: Settings) -> None:
    with embedded_redis(settings), _client(settings) as client:
        config = client.config_get("*")
        wanted = {
            "port": "0",
            "appendonly": "yes",
            "appendfsync": "always",
            "aof-use-rdb-preamble": "no",
            "save": "",
            "maxmemory-policy": "noeviction",
            "aof-load-truncated": "yes",
            "dir": str(settings.data_dir / "redis"),
        }
        assert {name: config[name] for name in wanted} == wanted
        assert stat.S_IMODE(settings.redis_socket.stat().st_mode) == 0o700
        assert redis_server.answers(settings)
    assert not settings.redis_socket.exists()
    assert not redis_server.answers(settings)


def test_every_answered_write_survives_a_kill(settings: Settings) -> None:
    answered = []

    def write() -> None:
        with _client(settings) as client:
            while True:
                batch = client.pipeline(transaction=False)
                for _ in range(100):
                    batch.xadd("stream", {"event": "x" * 400})
                try:
                    answered.extend(batch.execute())
                except redis.RedisError:
                    return

    for _ in range(2):
        with embedded_redis(settings) as process:
            writer = threading.Thread(target=write)
            before = len(answered)
            writer.start()
            while len(answered) < before + 2000:
                assert process.poll() is None
            process.send_signal(signal.SIGKILL)
            writer.join(timeout=10)
            assert not writer.is_alive()
    with embedded_redis(settings), _client(settings) as client:
        assert set(answered) <= {entry for entry, _ in client.xrange("stream")}


def test_a_file_cut_off_in_the_middle_of_a_write_is_loaded_up_to_there(settings: Settings) -> None:
    with embedded_redis(settings), _client(settings) as client:
        client.set("first", "kept")
        client.set("last", "lost")
    newest = max(redis_dir(settings).rglob("*.aof"), key=lambda path: path.stat().st_size)
    os.truncate(newest, newest.stat().st_size - 3)
    with embedded_redis(settings), _client(settings) as client:
        assert client.mget("first", "last") == [b"kept", None]


def test_a_damaged_file_is_refused_with_the_end_of_the_log(settings: Settings) -> None:
    with embedded_redis(settings), _client(settings) as client:
        client.set("first", "kept")
    newest = max(redis_dir(settings).rglob("*.aof"), key=lambda path: path.stat().st_size)
    newest.write_bytes(b"damaged" + newest.read_bytes())
    with (
        pytest.raises(NotReady, match=r"(?s)ended at its start \(exit code 1\).*Bad file format"),
        embedded_redis(settings),
    ):
        pass


def test_a_data_dir_is_used_by_one_server_at_a_time(settings: Settings) -> None:
    with embedded_redis(settings), pytest.raises(UsageError, match="already running as pid"), embedded_redis(settings):
        pass


def test_a_server_left_from_a_killed_supervisor_is_shut_down_and_its_data_kept(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis_server, "LEFTOVER_SECONDS", 0.5)
    with _server(settings) as left, _client(settings) as client:
        client.set("first", "kept")
        with embedded_redis(settings):
            assert left.poll() == 0
            assert client.get("first") == b"kept"


def test_a_server_of_another_dir_on_our_socket_is_left_alone(settings: Settings, tmp_path: Path) -> None:
    with (
        _server(settings, "--dir", str(tmp_path)) as other,
        pytest.raises(NotReady, match=f"belongs to another Redis .pid {other.pid}"),
        embedded_redis(settings),
    ):
        pass


def test_data_of_a_newer_redis_is_not_started_empty_by_an_older_one(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    (redis_dir(settings) / "appendonlydir").mkdir(parents=True)
    monkeypatch.setattr(redis_server, "server_version", lambda binary: (6, 2))
    with pytest.raises(NotReady, match="written by Redis 7 or later"):
        prepare(settings)


@pytest.fixture
def long_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Settings]:
    """A data dir whose path is too long for a socket, and a TMPDIR that is too."""
    monkeypatch.setenv("TMPDIR", str(tmp_path / ("long-" * 30)))
    settings = load_settings(data_dir=tmp_path / ("long-" * 30))
    yield settings
    assert not settings.redis_socket.parent.exists()


def test_a_long_data_dir_puts_the_socket_into_a_short_private_folder(long_settings: Settings) -> None:
    with embedded_redis(long_settings), _client(long_settings) as client:
        assert client.ping()
        folder = long_settings.redis_socket.parent
        assert folder != long_settings.data_dir
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_socket_folder_that_others_can_enter_is_refused(long_settings: Settings) -> None:
    folder = long_settings.redis_socket.parent
    folder.mkdir()
    folder.chmod(0o755)
    with pytest.raises(NotReady, match=r"mode 0700, but has owner .* and mode 0755"):
        prepare(long_settings)
    folder.rmdir()
    folder.symlink_to(folder.parent)
    with pytest.raises(NotReady, match="must be a folder"):
        prepare(long_settings)
    folder.unlink()


def test_the_doctor_finds_the_embedded_server_in_order(settings: Settings) -> None:
    with embedded_redis(settings):
        found = {check.name: check for check in checks(settings) if check.name.startswith(("redis", "clock"))}
    assert {name: check.ok for name, check in found.items()} == {
        "redis server binary": True,
        "redis": True,
        "redis version": True,
        "redis eviction": True,
        "redis persistence": True,
        "redis memory": True,
        "clock": True,
    }
    assert found["redis persistence"].found == "AOF on, appendfsync always"


@pytest.fixture
def slow_to_load(settings: Settings) -> list[str]:
    """The command line of a server that takes about 3 s to load what the data dir holds."""
    with embedded_redis(settings), _client(settings) as client:
        batch = client.pipeline(transaction=False)
        for number in range(20_000):
            batch.set(str(number), "x")
        batch.execute()
    return [*server_argv(find_server(), settings), "--key-load-delay", "150"]  # microseconds a command


def test_a_server_that_is_still_loading_is_waited_for(
    settings: Settings, slow_to_load: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis_server, "ANSWER_SECONDS", 1.5)
    started = time.monotonic()
    process = spawn(slow_to_load, redis_log(settings))
    try:
        assert wait_until_ready(settings, process)
        assert time.monotonic() - started > 1.5
    finally:
        end([process], grace=5)


def test_a_leftover_that_is_still_loading_is_shut_down(
    settings: Settings, slow_to_load: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis_server, "LEFTOVER_SECONDS", 0.5)
    left = spawn(slow_to_load, redis_log(settings))
    try:
        while not settings.redis_socket.exists():
            assert left.poll() is None
        prepare(settings)
        assert left.poll() is not None
    finally:
        end([left], grace=5)
