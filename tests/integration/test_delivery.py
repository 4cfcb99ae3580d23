"""Stream, intake, ingest and ledger on a real Redis, catalog and LanceDB, step by step in one process."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from threading import Event
from typing import Any

import numpy as np
import pytest

from producers.connection import connect
from producers.errors import EmbedderUnavailable, ModelError, PoisonError, StreamFull, StreamUnavailable
from producers.events import TurnEvent
from producers.keys import EVENT_FIELD, GROUP, Keys
from producers.settings import Settings
from producers.stream import EventStream
from workers.dead_letters import DeadLetters
from workers.intake import Intake
from workers.ledger import Ledger
from workers.queues import rq_queue, use_prefix
from workers.runtime import Runtime, Stopping, build_pipeline, install
from workers.stores.catalog import Catalog
from workers.stores.vectors import VectorStore

pytestmark = pytest.mark.integration


def turn(content: str, index: int = 0, **fields: Any) -> TurnEvent:
    return TurnEvent(**{"session_id": "s", "role": "user", **fields}, turn_index=index, content=content)


class System:
    """The parts of the path, driven by hand: what intake and a worker do, when the test says so."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.client = connect(settings)
        self.keys = Keys(settings.key_prefix)
        self.stop = Event()
        use_prefix(settings)
        self.pipeline = build_pipeline(settings)
        install(Runtime(settings, self.client, "worker", self.stop, self.pipeline))
        self.queue = rq_queue("live", self.client, settings)
        self.intake = Intake(self.client, settings, "live", "intake", self.stop)
        self.ledger = Ledger(self.client, settings, "live", "worker")
        self.ledger.ensure_group()

    def push(self, *events: TurnEvent) -> None:
        with EventStream(self.settings) as stream:
            stream.append(events)

    def step(self) -> None:
        """One round of intake, with its housekeeping."""
        self.intake._next_housekeeping = 0.0
        self.intake.step()

    def work(self) -> int:
        """Run every queued job, as a worker would; returns how many."""
        from rq import SimpleWorker
        from rq.serializers import JSONSerializer

        done = self.queue.count
        worker = SimpleWorker([self.queue], connection=self.client, serializer=JSONSerializer)
        worker.work(burst=True, logging_level="ERROR")
        return done

    def settle(self) -> None:
        while True:
            self.step()
            if not self.work():
                return

    def abandon(self) -> None:
        """Let every lease run out."""
        time.sleep(self.settings.lease + 0.05)

    def counts(self) -> tuple[int, int, int]:
        """(turns, chunks, rows of the vector store); the keys of both stores must be the same and unique."""
        catalog = Catalog.open(self.settings.catalog_location)
        active = catalog.active_space()
        assert active is not None
        wanted = list(catalog.vector_ids(active.space))
        stored = sorted(VectorStore(self.settings.vectors_location).keys(active.space))
        assert stored == wanted
        counts = catalog.counts()
        assert counts.pending == 0
        catalog.close()
        return counts.turns, counts.chunks, len(stored)

    def left(self) -> tuple[int, int]:
        """(entries in the stream, pending)."""
        with EventStream(self.settings) as stream:
            backlog = stream.backlog()
        return backlog.length, backlog.pending


@pytest.fixture
def system(live_settings: Settings) -> System:
    return System(live_settings.model_copy(update={"lease": 1.0, "batch_wait": 0.0}))


@pytest.fixture
def make_system(live_settings: Settings) -> Callable[..., System]:
    return lambda **changes: System(live_settings.model_copy(update={"lease": 1.0, "batch_wait": 0.0, **changes}))


def failing(system: System, monkeypatch: pytest.MonkeyPatch, fail: Callable[[Sequence[str]], None]) -> None:
    """Make the embedder call `fail` with its texts first."""
    embedder = system.pipeline._embedder
    embed = embedder.embed_passages

    def embed_passages(texts: Sequence[str]) -> np.ndarray:
        fail(texts)
        return embed(texts)

    monkeypatch.setattr(embedder, "embed_passages", embed_passages)


def test_a_pushed_turn_ends_in_both_stores_and_leaves_nothing_behind(system: System) -> None:
    system.push(turn("hello", 0), turn("你好，世界", 1))
    system.settle()
    assert system.counts() == (2, 2, 2)
    assert system.left() == (0, 0)
    assert not [key for key in system.client.scan_iter("*") if b":job:" in key], "a finished job leaves no record"


def test_an_entry_stays_in_the_stream_until_it_is_stored(system: System) -> None:
    system.push(turn("hello"))
    system.step()
    assert system.left() == (1, 1)
    assert system.work() == 1
    assert system.left() == (0, 0)


def test_a_job_carries_ids_and_never_content(system: System) -> None:
    system.push(turn("a secret of the agent"))
    system.step()
    (job,) = system.queue.get_jobs()
    assert job.func_name == "workers.jobs.ingest"
    lane, ids, delivery = job.args
    assert (lane, len(ids), delivery) == ("live", 1, 1)
    assert all(b"secret" not in value for value in system.client.hgetall(job.key).values())


def test_pushing_the_same_turns_again_changes_nothing_and_embeds_nothing(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = [turn(f"turn number {n}", n) for n in range(20)]
    system.push(*events)
    system.settle()
    before = system.counts()

    def refuse(texts: Sequence[str]) -> None:
        assert not texts

    failing(system, monkeypatch, refuse)
    system.push(*events)
    system.settle()
    assert system.counts() == before
    assert system.left() == (0, 0)


def test_equal_texts_are_embedded_once(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    texts_embedded: list[str] = []
    failing(system, monkeypatch, texts_embedded.extend)
    system.push(*[turn("ok", n) for n in range(30)], turn("something else", 30))
    system.settle()
    assert sorted(texts_embedded) == ["ok", "something else"]
    assert system.counts() == (31, 31, 31)


def test_a_revision_replaces_the_turn_in_both_stores(system: System) -> None:
    system.push(turn("the port is 8080"))
    system.settle()
    system.push(turn("the port is 9090"))
    system.settle()
    assert system.counts() == (1, 1, 1)
    assert Catalog.open(system.settings.catalog_location).recent_contents(5) == ["the port is 9090"]


def test_two_revisions_in_one_batch_leave_the_later_one(system: System) -> None:
    system.push(turn("first"), turn("second"), turn("first"), turn("third"))
    system.settle()
    assert system.counts() == (1, 1, 1)
    assert Catalog.open(system.settings.catalog_location).recent_contents(5) == ["third"]


def test_an_older_revision_that_is_worked_on_later_does_not_come_back(make_system: Callable[..., System]) -> None:
    system = make_system(batch_turns=1)
    system.push(turn("old"), turn("new"))
    system.step()
    system.step()
    old, new = system.queue.get_job_ids()
    system.queue.remove(old)
    system.work()
    system.queue.push_job_id(old)
    system.work()
    assert Catalog.open(system.settings.catalog_location).recent_contents(5) == ["new"]
    assert system.counts() == (1, 1, 1)
    assert new != old


def test_what_a_dead_intake_read_is_taken_over_after_the_lease(system: System) -> None:
    system.push(turn("hello"))
    Ledger(system.client, system.settings, "live", "died").read(10, block=0)
    system.step()
    assert system.queue.count == 0, "the lease has not run out"
    system.abandon()
    system.step()
    assert system.work() == 1
    assert system.counts() == (1, 1, 1)
    assert system.left() == (0, 0)


def test_what_waits_in_rq_is_not_enqueued_again_however_long_it_waits(system: System) -> None:
    system.push(turn("hello"))
    system.step()
    for _ in range(4):
        time.sleep(system.settings.lease / 2)
        system.step()
    assert system.queue.count == 1
    pending = system.client.xpending_range(system.keys.stream("live"), GROUP, "-", "+", 10)
    assert [row["times_delivered"] for row in pending] == [1]


def test_running_the_same_batch_twice_stores_it_once(system: System) -> None:
    from workers.jobs import ingest

    system.push(*[turn(f"turn {n}", n) for n in range(5)])
    ids = [entry.id for entry in system.ledger.read(10, block=0)]
    ingest("live", ids, 1)
    ingest("live", ids, 2)
    assert system.counts() == (5, 5, 5)


def test_the_claim_cursor_reaches_the_end_of_a_long_pending_list(make_system: Callable[..., System]) -> None:
    system = make_system(batch_turns=4, max_inflight=100)
    system.push(*[turn(f"turn {n}", n) for n in range(30)])
    Ledger(system.client, system.settings, "live", "died").read(30, block=0)
    system.abandon()
    for _ in range(10):
        system.step()
    system.work()
    assert system.counts() == (30, 30, 30)
    assert system.left() == (0, 0)


def test_an_entry_whose_data_was_trimmed_is_acknowledged_and_counted(system: System) -> None:
    system.push(turn("kept", 0), turn("trimmed by someone", 1), turn("kept too", 2))
    entries = Ledger(system.client, system.settings, "live", "died").read(10, block=0)
    system.client.xdel(system.keys.stream("live"), entries[1].id)
    system.abandon()
    system.settle()
    assert system.counts() == (2, 2, 2)
    assert system.left() == (0, 0)
    assert system.client.hget(system.keys.counters, "lost_entry") == b"1"


def test_a_poison_turn_is_buried_alone_with_its_reason_and_can_be_replayed(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(texts: Sequence[str]) -> None:
        if any("poison" in text for text in texts):
            raise PoisonError("the model refuses this text")

    with monkeypatch.context() as patched:
        failing(system, patched, refuse)
        system.push(*[turn(f"good {n}", n) for n in range(30)], turn("poison", 30))
        system.settle()
        assert system.counts() == (30, 30, 30)
        assert system.left() == (0, 0)
    letters = DeadLetters(system.client, system.settings)
    (letter,) = letters.all()
    assert (letter.turn_index, letter.lane, letter.deliveries) == (30, "live", 1)
    assert letter.reason == "PoisonError: the model refuses this text"
    assert letter.died_ms >= letter.accepted_ms > 0
    assert letters.replay(None) == 1
    system.settle()
    assert system.counts() == (31, 31, 31)
    assert letters.count() == 0


def test_an_unexpected_error_is_delivered_again_and_buried_after_the_limit(
    make_system: Callable[..., System], monkeypatch: pytest.MonkeyPatch
) -> None:
    system = make_system(max_deliveries=2)

    def crash(texts: Sequence[str]) -> None:
        if any("bug" in text for text in texts):
            raise ZeroDivisionError("the text itself must not be in the reason: bug")

    failing(system, monkeypatch, crash)
    system.push(turn("good", 0), turn("bug", 1))
    for _ in range(3):
        system.settle()
        system.abandon()
    assert system.counts() == (1, 1, 1)
    assert system.left() == (0, 0)
    (letter,) = DeadLetters(system.client, system.settings).all()
    assert letter.deliveries == 2
    assert letter.reason == "ZeroDivisionError in the worker (see its log) on delivery 2"


def test_an_entry_that_kills_its_worker_each_time_is_buried_after_the_limit(make_system: Callable[..., System]) -> None:
    system = make_system(max_deliveries=2)
    system.push(turn("killer"))
    for _ in range(4):
        system.step()
        system.queue.empty()  # the worker took the job and died with it
        system.abandon()
    (letter,) = DeadLetters(system.client, system.settings).all()
    assert letter.reason.startswith("delivered 2 times without being stored")
    assert system.left() == (0, 0)


def test_an_entry_that_is_no_turn_event_is_buried_and_the_rest_is_stored(system: System) -> None:
    system.client.xadd(system.keys.stream("live"), {EVENT_FIELD: b'{"session_id": "s"}'})
    system.client.xadd(system.keys.stream("live"), {b"other": b"fields"})
    system.push(turn("good"))
    system.settle()
    assert system.counts() == (1, 1, 1)
    reasons = [letter.reason for letter in DeadLetters(system.client, system.settings).all()]
    assert reasons[0].startswith("not a valid turn event: turn_index: missing")
    assert reasons[1].startswith("not a valid turn event: invalid JSON")


@pytest.mark.parametrize("error", [EmbedderUnavailable("429", retry_after=0.01), ModelError("not loaded yet")])
def test_an_embedder_that_fails_for_a_while_delays_and_loses_nothing(
    system: System, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    monkeypatch.setattr("workers.jobs.FIRST_WAIT", 0.01)
    failures = [error] * 3

    def fail(texts: Sequence[str]) -> None:
        if texts and failures:
            raise failures.pop()

    failing(system, monkeypatch, fail)
    system.push(turn("hello"))
    system.settle()
    assert system.counts() == (1, 1, 1)
    assert DeadLetters(system.client, system.settings).count() == 0


def test_a_worker_that_stops_while_it_waits_gives_its_batch_back_uncounted(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:

        def fail(texts: Sequence[str]) -> None:
            system.stop.set()
            raise EmbedderUnavailable("away")

        failing(system, patched, fail)
        system.push(turn("hello"))
        system.step()
        system.work()
    assert system.left() == (1, 1)
    system.stop.clear()
    system.step()
    (job,) = system.queue.get_jobs()
    assert job.args[2] == 1, "a clean stop is no failed delivery"
    system.work()
    assert system.counts() == (1, 1, 1)


def test_high_water_makes_an_append_wait_and_then_fail_without_losing_what_was_accepted(
    live_settings: Settings,
) -> None:
    settings = live_settings.model_copy(update={"high_water": 500, "append_timeout": 0.3})
    with EventStream(settings) as stream:
        started = time.monotonic()
        with pytest.raises(StreamFull) as caught:
            stream.append(turn(f"turn {n}", n) for n in range(2000))
        assert time.monotonic() - started >= 0.3
        assert "500 entries wait, high_water is 500" in str(caught.value)
        assert "scope-recall status" in str(caught.value)
        assert stream.backlog().length == 500


def test_an_append_goes_on_as_soon_as_there_is_room(live_settings: Settings) -> None:
    from threading import Timer

    settings = live_settings.model_copy(update={"high_water": 10, "append_timeout": 10.0})
    client = connect(settings)
    with EventStream(settings) as stream:
        stream.append([turn(f"turn {n}", n) for n in range(10)])
        timer = Timer(0.3, lambda: client.xtrim(Keys("scope-recall").stream("live"), maxlen=0))
        timer.start()
        assert stream.append([turn("one more", 99)]) == 1
        timer.join()


def test_a_redis_that_was_never_there_is_named_at_once(settings: Settings) -> None:
    started = time.monotonic()
    with EventStream(settings) as stream, pytest.raises(StreamUnavailable) as caught:
        stream.append([turn("hello")])
    assert time.monotonic() - started < 2
    assert str(settings.redis_socket) in str(caught.value)
    assert "scope-recall up" in str(caught.value)


def test_what_rq_holds_is_bounded_and_the_rest_waits_in_the_stream(make_system: Callable[..., System]) -> None:
    system = make_system(batch_turns=2, max_inflight=3)
    system.push(*[turn(f"turn {n}", n) for n in range(20)])
    for _ in range(6):
        system.step()
    assert system.queue.count == 3
    assert system.left() == (20, 6)


def test_turns_of_both_lanes_are_stored_and_live_jobs_come_first(system: System) -> None:
    with EventStream(system.settings, "backfill") as stream:
        stream.append([turn("old", 1)])
    backfill = Intake(system.client, system.settings, "backfill", "intake", Event())
    backfill._ledger.ensure_group()
    backfill.step()
    assert rq_queue("backfill", system.client, system.settings).count == 1
    assert system.queue.count == 0


def test_stopping_is_not_mistaken_for_a_failure() -> None:
    assert not issubclass(Stopping, (PoisonError, EmbedderUnavailable))
    assert json.loads(turn("x").to_json())["content"] == "x"
