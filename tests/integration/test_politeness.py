"""Live turns before old ones: a backfill batch makes way, loses nothing by it, and has its share."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from redis.exceptions import OutOfMemoryError

from producers.errors import StreamFull
from producers.settings import Settings
from producers.stream import EventStream
from stepped import Stepped, failing, turn
from workers.queues import connect, rq_queue
from workers.runtime import Runtime, runtime

pytestmark = pytest.mark.integration


@pytest.fixture
def old(live_settings: Settings) -> Stepped:
    return Stepped(live_settings.model_copy(update={"batch_wait": 0.0}), "backfill")


def say_live(system: Stepped, monkeypatch: pytest.MonkeyPatch, *, at_call: int) -> list[int]:
    """Have a live turn queued at a call of the embedder; returns the sizes of the calls."""
    calls: list[int] = []
    live = Stepped(system.settings)
    system.reinstall()

    def say(texts: Sequence[str]) -> None:
        calls.append(len(texts))
        if len(calls) == at_call:
            live.push(turn("a live turn", session_id="live"))
            live.step()

    failing(system, monkeypatch, say)
    return calls


def test_a_batch_that_is_being_embedded_makes_way_and_goes_on_where_it_was(
    old: Stepped, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = say_live(old, monkeypatch, at_call=2)
    monkeypatch.setattr("workers.jobs.YIELD_SECONDS", 0.0)  # a text a call
    old.push(*[turn(f"old turn {n}", n) for n in range(20)])
    old.step()
    work_one(old)
    assert sum(calls) == 2
    assert old.queue.count == 1, "queued again"
    assert rq_queue("live", old.client, old.settings).count == 1
    assert [delivery_of(old)] == [1], "and its delivery does not count"
    work_one(old, "live")
    old.settle()
    assert old.counts() == (21, 21, 21)
    assert sum(calls) == 21, "what was embedded before it made way is not embedded again"
    assert old.left() == (0, 0)


def test_a_batch_that_makes_way_while_redis_takes_no_job_is_given_back(
    old: Stepped, monkeypatch: pytest.MonkeyPatch
) -> None:
    say_live(old, monkeypatch, at_call=2)
    monkeypatch.setattr("workers.jobs.YIELD_SECONDS", 0.0)

    def full(*arguments: object, **options: object) -> bool:
        raise OutOfMemoryError("command not allowed when used memory > 'maxmemory'")

    old.push(*[turn(f"old turn {n}", n) for n in range(20)])
    old.step()
    with monkeypatch.context() as patch:
        patch.setattr("workers.jobs.enqueue_batch", full)
        work_one(old)
    assert old.queue.failed_job_registry.count == 0
    old.step()  # finds the batch without waiting for its lease
    assert [delivery_of(old)] == [1], "and its delivery does not count"
    work_one(old, "live")
    old.settle()
    assert old.counts() == (21, 21, 21)


@pytest.mark.parametrize("share", [0.0, 600.0])
def test_a_batch_that_is_taken_while_live_turns_wait_uses_its_share(
    old: Stepped, monkeypatch: pytest.MonkeyPatch, share: float
) -> None:
    calls = say_live(old, monkeypatch, at_call=99)
    monkeypatch.setattr("workers.jobs.YIELD_SECONDS", 0.0)
    live = Stepped(old.settings)
    live.push(turn("a live turn", session_id="live"))
    live.step()
    old.reinstall()
    old.push(*[turn(f"old turn {n}", n) for n in range(5)])
    old.step()
    runtime().share.seconds = share
    work_one(old)
    assert sum(calls) == (5 if share else 0)
    assert old.queue.count == (0 if share else 1)
    runtime().share.seconds = 0.0
    work_one(old, "live")
    old.settle()
    assert old.counts() == (6, 6, 6)
    assert sum(calls) == 6


def test_a_worker_takes_live_jobs_first_and_after_some_of_them_one_of_the_backfill(
    live_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    system = Stepped(live_settings)
    from workers.worker import LIVE_IN_A_ROW, ResidentWorker  # imports rq, which must come after its prefix

    queues = [rq_queue(lane, system.client, live_settings) for lane in ("live", "backfill")]
    resident = Runtime(live_settings, system.client, "w", system.stop, system.pipeline, None)
    worker = ResidentWorker(queues, resident)
    for _ in range(LIVE_IN_A_ROW - 1):
        worker.reorder_queues(queues[0])
        assert worker._ordered_queues == queues
    worker.reorder_queues(queues[0])
    assert worker._ordered_queues == queues[::-1]
    monkeypatch.setattr("time.monotonic", lambda: 40.0)
    monkeypatch.setattr(worker, "_row_began", 36.0)
    worker.reorder_queues(queues[1])
    assert worker._ordered_queues == queues
    assert resident.share.seconds == 4.0 / LIVE_IN_A_ROW, "as long as one of the live jobs"
    worker.reorder_queues(queues[1])
    assert resident.share.seconds == 0.0, "its turn is over"


def test_the_backfill_stream_has_a_high_water_of_its_own(live_settings: Settings) -> None:
    settings = live_settings.model_copy(update={"backfill_high_water": 3, "append_timeout": 0.05})
    with EventStream(settings) as live:
        assert live.append(turn(f"live {n}", n) for n in range(10)) == 10
    with EventStream(settings, "backfill") as old:
        old.append(turn(f"old {n}", n) for n in range(3))
        with pytest.raises(StreamFull, match="backfill_high_water is 3"):
            old.append([turn("one too many", 3)])


def work_one(system: Stepped, lane: str = "backfill") -> None:
    """Run the next job of the lane."""
    from rq import SimpleWorker
    from rq.serializers import JSONSerializer

    queue = rq_queue(lane, system.client, system.settings)
    worker = SimpleWorker([queue], connection=system.client, serializer=JSONSerializer)
    worker.work(burst=True, max_jobs=1, logging_level="ERROR")


def delivery_of(system: Stepped) -> int:
    """The delivery that the queued batch is on."""
    (job,) = rq_queue("backfill", connect(system.settings), system.settings).get_jobs()
    delivery: int = job.args[2]
    return delivery
