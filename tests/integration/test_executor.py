"""What RQ and consumer groups must not do to us: queue a batch twice, fork, die with a job, drop pending entries."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from typing import NoReturn

import pytest
import sqlalchemy as sa

from producers.events import utc_microseconds
from producers.keys import GROUP
from producers.settings import Settings
from stepped import Stepped, turn
from workers import ledger
from workers.queues import MAINTENANCE, rq_queue
from workers.stores.engine import open_engine
from workers.stores.tables import turns

pytestmark = pytest.mark.integration

LAST_YEAR = datetime(2025, 1, 2, 3, 4, 5, tzinfo=UTC)


@pytest.fixture
def system(shared_settings: Settings) -> Stepped:
    return Stepped(shared_settings.model_copy(update={"batch_wait": 0.0}))


def test_a_batch_that_is_queued_already_is_not_queued_again_nor_overwritten(system: Stepped) -> None:
    system.push(turn("hello"))
    ids = [entry.id for entry in system.ledger.read(10, block=0)]
    for _ in range(3):
        system.intake._enqueue(ids, delivery=1)
    assert system.queue.count == 1
    system.intake._enqueue(ids, delivery=2)
    assert system.queue.count == 2, "the next delivery is another job"


def test_a_worker_never_forks_once_its_encoder_and_lancedb_are_loaded(
    system: Stepped, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rq import SimpleWorker

    from workers.worker import ResidentWorker

    def refuse() -> NoReturn:
        raise AssertionError("a worker forked")

    assert ResidentWorker.execute_job is SimpleWorker.execute_job, "the way in which the jobs below run"

    monkeypatch.setattr(os, "fork", refuse)
    system.push(turn("hello"))
    system.step()
    assert system.work() == 1
    assert system.counts() == (1, 1, 1)


def test_a_job_that_fails_does_not_end_its_worker_and_the_next_one_runs(system: Stepped) -> None:
    system.queue.enqueue("workers.jobs.ingest", args=("no such lane", ["1-1"], 1))
    system.queue.enqueue("workers.jobs.no_such_job")
    system.push(turn("hello"))
    system.step()
    assert system.work() == 3
    assert system.counts() == (1, 1, 1)


def test_maintenance_waits_in_a_queue_that_ingest_workers_do_not_take(system: Stepped) -> None:
    maintenance = rq_queue(MAINTENANCE, system.client, system.settings)
    maintenance.enqueue("workers.jobs.run_maintenance", args=("index",))
    system.push(turn("hello"))
    system.settle()
    assert system.counts() == (1, 1, 1)
    assert maintenance.count == 1


def test_equal_events_in_one_batch_are_one_turn_and_counted_as_duplicates(system: Stepped) -> None:
    system.push(turn("hello"), turn("hello"), turn("hello"))
    system.settle()
    assert system.counts() == (1, 1, 1)
    assert system.left() == (0, 0)
    assert system.client.hgetall(system.keys.counters) == {b"new": b"1", b"duplicate": b"2"}


def test_a_silent_consumer_is_forgotten_only_when_nothing_of_it_is_pending(
    system: Stepped, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger, "IDLE_CONSUMER_MS", -1)
    stream = system.keys.stream("live")
    system.push(turn("held by a dead process"))
    ledger.Ledger(system.client, system.settings, "live", "dead").read(1, block=0)
    system.client.xgroup_createconsumer(stream, GROUP, "gone")
    system.ledger.remove_idle_consumers()
    assert [row["name"] for row in system.client.xinfo_consumers(stream, GROUP)] == [b"dead"]
    assert system.left() == (1, 1), "its entry is still there to be taken over"


def test_event_time_and_ingest_time_are_two_fields(system: Stepped) -> None:
    """A transcript of last year is not stamped with today."""
    system.push(turn("old", 0, created_at=LAST_YEAR), turn("without a time", 1))
    system.settle()
    engine = open_engine(system.settings.catalog_location, create=False)
    with engine.connect() as connection:
        rows = connection.execute(sa.select(turns.c.created_at_us, turns.c.ingested_at_us).order_by("turn_index")).all()
    engine.dispose()
    assert rows[0].created_at_us == utc_microseconds(LAST_YEAR)
    assert rows[1].created_at_us is None
    assert all(row.ingested_at_us > utc_microseconds(LAST_YEAR) for row in rows)
