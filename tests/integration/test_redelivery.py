"""What is read and not stored: leases, redelivery, poison and dead letters, on a real Redis, catalog and LanceDB."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import pytest

from producers.errors import EmbedderUnavailable, ModelError, PoisonError
from producers.keys import EVENT_FIELD, GROUP
from stepped import Stepped, failing, turn
from workers.dead_letters import DeadLetters
from workers.ledger import Ledger
from workers.status import gather_status

pytestmark = pytest.mark.integration


def test_what_a_dead_intake_read_is_taken_over_after_the_lease(system: Stepped) -> None:
    system.push(turn("hello"))
    Ledger(system.client, system.settings, "live", "died").read(10, block=0)
    system.step()
    assert system.queue.count == 0, "the lease has not run out"
    system.abandon()
    system.step()
    assert system.work() == 1
    assert system.counts() == (1, 1, 1)
    assert system.left() == (0, 0)


def test_what_waits_in_rq_is_not_enqueued_again_however_long_it_waits(system: Stepped) -> None:
    system.push(turn("hello"))
    system.step()
    for _ in range(4):
        time.sleep(system.settings.lease / 2)
        system.step()
    assert system.queue.count == 1
    pending = system.client.xpending_range(system.keys.stream("live"), GROUP, "-", "+", 10)
    assert [row["times_delivered"] for row in pending] == [1]


def test_running_the_same_batch_twice_stores_it_once(system: Stepped) -> None:
    from workers.jobs import ingest

    system.push(*[turn(f"turn {n}", n) for n in range(5)])
    ids = [entry.id for entry in system.ledger.read(10, block=0)]
    ingest("live", ids, 1)
    ingest("live", ids, 2)
    assert system.counts() == (5, 5, 5)


def test_the_claim_cursor_reaches_the_end_of_a_long_pending_list(make_system: Callable[..., Stepped]) -> None:
    system = make_system(batch_turns=4, max_inflight=100)
    system.push(*[turn(f"turn {n}", n) for n in range(30)])
    Ledger(system.client, system.settings, "live", "died").read(30, block=0)
    system.abandon()
    for _ in range(10):
        system.step()
    system.work()
    assert system.counts() == (30, 30, 30)
    assert system.left() == (0, 0)


def test_an_entry_whose_data_was_trimmed_is_acknowledged_and_counted(system: Stepped) -> None:
    system.push(turn("kept", 0), turn("trimmed by someone", 1), turn("kept too", 2))
    entries = Ledger(system.client, system.settings, "live", "died").read(10, block=0)
    system.client.xdel(system.keys.stream("live"), entries[1].id)
    system.abandon()
    system.settle()
    assert system.counts() == (2, 2, 2)
    assert system.left() == (0, 0)
    assert system.client.hget(system.keys.counters, "lost_entry") == b"1"


def test_a_poison_turn_is_buried_alone_with_its_reason_and_can_be_replayed(
    system: Stepped, monkeypatch: pytest.MonkeyPatch
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
    assert letters.replay() == 1
    system.settle()
    assert system.counts() == (31, 31, 31)
    assert letters.count() == 0


def test_an_unexpected_error_is_delivered_again_and_buried_after_the_limit(
    make_system: Callable[..., Stepped], monkeypatch: pytest.MonkeyPatch
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


def test_an_entry_that_kills_its_worker_each_time_is_buried_at_the_limit(
    make_system: Callable[..., Stepped],
) -> None:
    system = make_system(max_deliveries=2)
    system.push(turn("killer"))
    for _ in range(4):
        system.step()
        system.queue.empty()  # the worker took the job and died with it
        system.abandon()
    (letter,) = DeadLetters(system.client, system.settings).all()
    assert letter.reason.startswith("delivered 2 times without being stored")
    assert system.left() == (0, 0)


def test_an_entry_that_is_no_turn_event_is_buried_and_the_rest_is_stored(system: Stepped) -> None:
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
    system: Stepped, monkeypatch: pytest.MonkeyPatch, error: Exception
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
    system: Stepped, monkeypatch: pytest.MonkeyPatch
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


def test_a_batch_that_waited_long_enough_goes_back_uncounted_and_status_says_what_for(
    make_system: Callable[..., Stepped], monkeypatch: pytest.MonkeyPatch
) -> None:
    system = make_system(lease=15.0)  # for as long as that the reason is shown
    with monkeypatch.context() as patched:
        patched.setattr("workers.jobs.FIRST_WAIT", 0.01)
        patched.setattr("workers.jobs.WAITING_SHARE", 0.0001)  # of 1,800 s

        def away(texts: Sequence[str]) -> None:
            raise EmbedderUnavailable("the service answered 503")

        failing(system, patched, away)
        system.push(turn("hello"))
        system.step()
        system.work()
        degraded = gather_status(system.settings)["degraded"]
        assert "a worker waits and tries again: the service answered 503" in degraded
    system.step()
    (job,) = system.queue.get_jobs()
    assert job.args[2] == 1, "waiting is no failed delivery"
    system.work()
    assert system.counts() == (1, 1, 1)
