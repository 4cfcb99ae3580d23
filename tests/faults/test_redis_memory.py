"""A Redis at its maxmemory, with noeviction: appends wait, what is accepted stays, and all goes on when it has room."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
import redis
from comparison import Stored, Tally
from harness import CrashSystem

from producers.connection import connect
from producers.errors import EmbedderUnavailable, StreamFull
from producers.settings import Settings
from producers.stream import EventStream
from stepped import Stepped, failing, turn
from workers.dead_letters import DeadLetters
from workers.ledger import Ledger
from workers.status import gather_status

pytestmark = [pytest.mark.faults, pytest.mark.timeout(180)]


@contextmanager
def out_of_memory(client: redis.Redis, share: float = 0.5) -> Iterator[None]:
    """As if other programs had filled Redis: its limit is `share` of what it holds."""
    memory: Any = client.info("memory")
    client.config_set("maxmemory", int(memory["used_memory"] * share))
    try:
        yield
    finally:
        client.config_set("maxmemory", 0)


@pytest.fixture
def make_system(live_settings: Settings) -> Callable[..., Stepped]:
    return lambda **changes: Stepped(live_settings.model_copy(update={"lease": 1.0, "batch_wait": 0.0, **changes}))


def test_what_could_not_be_queued_is_not_counted_as_delivered(make_system: Callable[..., Stepped]) -> None:
    system = make_system(batch_turns=10, max_deliveries=3)
    system.push(*[turn(f"turn {number}", number) for number in range(12)])
    Ledger(system.client, system.settings, "live", "died").read(6, block=0)
    system.abandon()
    with out_of_memory(system.client):
        for _ in range(6):
            with pytest.raises(redis.exceptions.ResponseError, match="not allowed when used memory"):
                system.step()
    system.settle()
    assert system.counts() == (12, 12, 12)
    assert system.left() == (0, 0)
    assert DeadLetters(system.client, system.settings).count() == 0


def test_a_batch_that_is_under_way_is_stored_and_acknowledged(
    make_system: Callable[..., Stepped], monkeypatch: pytest.MonkeyPatch
) -> None:
    from workers.jobs import ingest  # imports rq, whose prefix the system sets

    system = make_system()
    system.push(*[turn(f"turn {number}", number) for number in range(30)])
    ids = [entry.id for entry in system.ledger.read(30, block=0)]
    attempts: list[int] = []

    def fail_once(texts: Sequence[str]) -> None:
        attempts.append(len(texts))
        if len(attempts) == 1:
            raise EmbedderUnavailable("busy", retry_after=0.01)

    failing(system, monkeypatch, fail_once)
    with out_of_memory(system.client):
        ingest("live", ids, 1)
    assert sum(attempts[1:]) == 30, "tried again, in however many parts"
    assert system.counts() == (30, 30, 30)
    assert system.left() == (0, 0)


def test_an_append_waits_then_fails_by_name_and_status_says_so(live_settings: Settings) -> None:
    settings = live_settings.model_copy(update={"append_timeout": 0.3})
    with connect(settings) as client, EventStream(settings) as stream:
        assert stream.append([turn("before")]) == 1
        with out_of_memory(client):
            with pytest.raises(StreamFull, match=r"maxmemory.*workers are running.*push again later"):
                stream.append([turn("refused", 1)])
            (line,) = [line for line in gather_status(settings)["degraded"] if "appends wait" in line]
            assert "maxmemory" in line
            assert "what is accepted is safe" in line
        assert stream.append([turn("after", 2)]) == 1
        assert stream.backlog().length == 2


def test_turns_never_fill_redis_so_far_that_no_job_could_be_queued(make_system: Callable[..., Stepped]) -> None:
    system = make_system(append_timeout=0.2, batch_turns=50)

    def fill() -> None:
        for number in range(1000):
            system.push(turn("x" * 20_000, number))

    with out_of_memory(system.client, share=8):
        with pytest.raises(StreamFull):
            fill()
        system.settle()
        assert system.left() == (0, 0)


def test_an_append_that_redis_cuts_short_goes_on_where_it_was(make_system: Callable[..., Stepped]) -> None:
    system = make_system()
    system.push(turn("first"))
    events = [turn(f"{number} " + "y" * 4000, number) for number in range(1, 500)]
    with out_of_memory(system.client, share=1.4):  # below the share that turns may fill, until the batch is half in
        sender = threading.Thread(target=system.push, args=events)
        sender.start()
        while "errorstat_OOM" not in system.client.info("errorstats"):
            assert sender.is_alive()
    sender.join(timeout=30)
    assert not sender.is_alive()
    system.settle()
    assert system.counts()[0] == len(events) + 1
    assert system.left() == (0, 0)


@pytest.mark.storm  # the supervisor's patience, not work, makes it slow
def test_processes_that_redis_has_no_memory_for_come_back_and_drain(tmp_path_factory: pytest.TempPathFactory) -> None:
    with CrashSystem(tmp_path_factory.mktemp("memory"), max_deliveries=3) as system:
        system.push(300)
        system.wait_until(lambda: system.queued() > 0, "jobs are queued")
        with connect(system.settings) as client, out_of_memory(client):
            system.wait_until(lambda: len(system.unexpected_ends) >= 1, "a worker ends")
        system.drain()
        everything = range(system.turns)
        assert Stored(system.settings).tally(everything) == Tally("all", "all", 1, 300, 300, 0)
        assert system.waiting_and_dead() == (0, 0)
        assert {event.name for event in system.unexpected_ends} <= {"worker-1", "worker-2", "maintenance"}
