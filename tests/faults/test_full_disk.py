"""A disk that is full, for the catalog, LanceDB, Redis and the spool: what is accepted waits, and goes on by itself.

A file-size limit on running processes stands for the full disk, so that these run anywhere; test_small_disk.py does the
same with disks that really are.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from comparison import Stored, Tally
from harness import CrashSystem

from limits import largest_file_of
from producers.connection import connect
from producers.keys import GROUP, Keys
from producers.settings import Settings, load_settings
from system import Cli, stop
from workers import status as status_module
from workers.status import gather_status
from workers.supervision.redis_server import redis_dir
from workers.supervision.supervisor import GRACE
from workers.supervision.tree_state import load_state

pytestmark = [pytest.mark.faults, pytest.mark.timeout(180)]

TURNS = 200
TINY = 512
"""Bytes; less than any file that a store must write."""
FULL_LEASES = 3.0
"""Leases for which the disk stays full: what is not renewed is delivered again meanwhile."""


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CrashSystem]:
    with CrashSystem(tmp_path_factory.mktemp("full"), max_deliveries=3) as running:
        yield running


def degraded(settings: Settings, *words: str) -> list[str]:
    """The lines of `status` that have all of these words."""
    return [line for line in gather_status(settings)["degraded"] if all(word in line for word in words)]


def wait_until_degraded(system: CrashSystem, *words: str) -> None:
    system.wait_until(lambda: bool(degraded(system.settings, *words)), f"status says {words}")


def assert_exact(system: CrashSystem) -> None:
    """All that was pushed is stored once, and nothing is left or degraded."""
    system.drain()
    everything = range(system.turns)
    stored = Stored(system.settings)
    assert stored.tally(everything) == Tally("all", "all", 1, len(everything), len(everything), 0)
    assert stored.strangers(everything) == (0, 0, 0)
    assert system.waiting_and_dead() == (0, 0)
    assert gather_status(system.settings)["degraded"] == []


def test_turns_wait_for_a_full_catalog_without_being_counted_as_delivered(system: CrashSystem) -> None:
    workers = [system.pid(name) for name in ("worker-1", "worker-2")]
    before = gather_status(system.settings)["catalog"]
    with largest_file_of(workers, TINY):  # their logs cannot grow either
        system.push(TURNS)
        wait_until_degraded(system, "a worker waits", "catalog.db", "accepted turns are safe", "its disk is full")
        system.wait(FULL_LEASES * system.settings.lease)
        assert gather_status(system.settings)["catalog"] == before
        with connect(system.settings) as client:
            stream = Keys(system.settings.key_prefix).stream("live")
            pending = client.xpending_range(stream, GROUP, "-", "+", TURNS)
        assert {row["times_delivered"] for row in pending} == {1}
    assert_exact(system)
    assert [system.pid(name) for name in ("worker-1", "worker-2")] == workers
    assert not system.unexpected_ends


def test_a_redis_that_cannot_write_loses_nothing_and_is_back_when_there_is_room(system: CrashSystem) -> None:
    system.push(TURNS)
    system.drain()
    reached = (redis_dir(system.settings) / "appendonly.aof").stat().st_size  # more than its log, which tells why
    with largest_file_of([system.pid("redis")], reached, system.redis_limit):
        system.push(TURNS)
        wait_until_degraded(system, "redis is down", "what it has answered is safe", "free space")
        wait_until_degraded(system, "accepted turns wait in", "spool")
        restarts = len(system.unexpected_ends)
        system.wait_until(lambda: len(system.unexpected_ends) > restarts + 5, "redis is started again and again")
    assert_exact(system)
    assert {(event.name, event.detail.partition(";")[0]) for event in system.unexpected_ends} == {
        ("redis", "exit code 1")
    }


def test_the_tree_stops_at_once_while_redis_cannot_run(tmp_path: Path) -> None:
    with CrashSystem(tmp_path) as running:
        with largest_file_of([running.pid("redis")], TINY, running.redis_limit):
            running.push(TURNS)
            running.wait_until(lambda: len(running.unexpected_ends) > 3, "redis is started again and again")
            started = time.monotonic()
            running.stop()
        assert time.monotonic() - started < GRACE
        assert {event.name for event in running.unexpected_ends} == {"redis"}


def test_a_supervisor_that_cannot_write_its_state_goes_on_and_status_says_that_it_is_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(status_module, "SILENT_SECONDS", 6.0)
    cli = Cli(tmp_path / "data")
    process = cli.start("up")
    try:
        cli.wait_ready(process)
        settings = load_settings(data_dir=cli.data_dir)
        written = load_state(cli.data_dir)
        with largest_file_of([process.pid], 16):
            deadline = time.monotonic() + 60
            while not degraded(settings, "state of the processes was last written", "full or read-only"):
                assert process.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.2)
            assert cli.push([{"session_id": "s", "turn_index": 0, "role": "user", "content": "hello"}]).code == 0
            assert cli.run("drain").code == 0
            left = load_state(cli.data_dir)
            assert written is not None
            assert left is not None
            assert left.children == written.children, "a state that could not be written left a torn one"
        while degraded(settings, "state of the processes"):
            assert time.monotonic() < deadline
            time.sleep(0.2)
        assert cli.run("status").code == 0
    finally:
        assert stop(process) == 0
