"""From push to stored: stream, back-pressure, duplicates and revisions, on a real Redis, catalog and LanceDB."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from threading import Event

import pytest

from producers.connection import connect
from producers.errors import StreamFull, StreamUnavailable
from producers.keys import Keys
from producers.settings import Settings
from producers.stream import EventStream
from stepped import Stepped, failing, turn
from workers.intake import Intake
from workers.queues import rq_queue
from workers.stores.catalog import Catalog

pytestmark = pytest.mark.integration


def test_a_pushed_turn_ends_in_both_stores_and_leaves_nothing_behind(system: Stepped) -> None:
    system.push(turn("hello", 0), turn("你好，世界", 1))
    system.settle()
    assert system.counts() == (2, 2, 2)
    assert system.left() == (0, 0)
    assert not [key for key in system.client.scan_iter("*") if b":job:" in key], "a finished job leaves no record"


def test_an_entry_stays_in_the_stream_until_it_is_stored(system: Stepped) -> None:
    system.push(turn("hello"))
    system.step()
    assert system.left() == (1, 1)
    assert system.work() == 1
    assert system.left() == (0, 0)


def test_a_job_carries_ids_and_never_content(system: Stepped) -> None:
    system.push(turn("a secret of the agent"))
    system.step()
    (job,) = system.queue.get_jobs()
    assert job.func_name == "workers.jobs.ingest"
    lane, ids, delivery = job.args
    assert (lane, len(ids), delivery) == ("live", 1, 1)
    assert all(b"secret" not in value for value in system.client.hgetall(job.key).values())


def test_pushing_the_same_turns_again_changes_nothing_and_embeds_nothing(
    system: Stepped, monkeypatch: pytest.MonkeyPatch
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


def test_equal_texts_are_embedded_once(system: Stepped, monkeypatch: pytest.MonkeyPatch) -> None:
    texts_embedded: list[str] = []
    failing(system, monkeypatch, texts_embedded.extend)
    system.push(*[turn("ok", n) for n in range(30)], turn("something else", 30))
    system.settle()
    assert sorted(texts_embedded) == ["ok", "something else"]
    assert system.counts() == (31, 31, 31)


def test_a_revision_replaces_the_turn_in_both_stores(system: Stepped) -> None:
    system.push(turn("the port is 8080"))
    system.settle()
    system.push(turn("the port is 9090"))
    system.settle()
    assert system.counts() == (1, 1, 1)
    assert Catalog.open(system.settings.catalog_location).recent_contents(5) == ["the port is 9090"]


def test_two_revisions_in_one_batch_leave_the_later_one(system: Stepped) -> None:
    system.push(turn("first"), turn("second"), turn("first"), turn("third"))
    system.settle()
    assert system.counts() == (1, 1, 1)
    assert Catalog.open(system.settings.catalog_location).recent_contents(5) == ["third"]


def test_an_older_revision_that_is_worked_on_later_does_not_come_back(make_system: Callable[..., Stepped]) -> None:
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


def test_without_a_spool_a_redis_that_was_never_there_is_named_at_once(settings: Settings) -> None:
    settings = settings.model_copy(update={"spool": False})
    started = time.monotonic()
    with EventStream(settings) as stream, pytest.raises(StreamUnavailable) as caught:
        stream.append([turn("hello")])
    assert time.monotonic() - started < 2
    assert str(settings.redis_socket) in str(caught.value)
    assert "scope-recall up" in str(caught.value)
    assert not settings.data_dir.exists(), "and nothing is written"


def test_what_rq_holds_is_bounded_and_the_rest_waits_in_the_stream(make_system: Callable[..., Stepped]) -> None:
    system = make_system(batch_turns=2, max_inflight=3)
    system.push(*[turn(f"turn {n}", n) for n in range(20)])
    for _ in range(6):
        system.step()
    assert system.queue.count == 3
    assert system.left() == (20, 6)


def test_turns_of_both_lanes_are_stored_and_live_jobs_come_first(system: Stepped) -> None:
    with EventStream(system.settings, "backfill") as stream:
        stream.append([turn("old", 1)])
    backfill = Intake(system.client, system.settings, "backfill", "intake", Event())
    backfill._ledger.ensure_group()
    backfill.step()
    assert rq_queue("backfill", system.client, system.settings).count == 1
    assert system.queue.count == 0


def test_a_worker_is_ready_only_when_it_has_loaded_lancedb(system: Stepped) -> None:
    """On an empty data dir too: loading takes seconds in which another worker could store what this one holds."""
    assert system.pipeline._vectors._lance._connection is not None
