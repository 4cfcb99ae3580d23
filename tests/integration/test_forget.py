"""Forgetting over the real path: everything that held it no longer does, and nothing else is touched."""

from __future__ import annotations

from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from bytes_left import holding

from producers.connection import connect
from producers.errors import NotReady, PoisonError, StoreUnavailable
from producers.events import TurnEvent
from producers.keys import Keys
from producers.settings import Settings
from producers.spool import spooled
from producers.stream import EventStream
from query.question import Question
from query.recall import Recaller
from stepped import Stepped, failing, turn
from workers.dead_letters import DeadLetters
from workers.maintenance import erasure_proof as proof
from workers.maintenance import forget as forgetting
from workers.maintenance.erasure import Report
from workers.maintenance.erasure_proof import kept_numbers
from workers.maintenance.forget import forget, resume
from workers.maintenance.run import run_job
from workers.status import gather_status
from workers.stores.catalog import Catalog
from workers.stores.scope import Scope
from workers.stores.selection import Selection
from workers.supervision.redis_server import embedded_redis

pytestmark = pytest.mark.integration

S3 = Selection("acme", "s3")


def said(session: int, index: int, tenant: str = "acme", **fields: Any) -> TurnEvent:
    content = f"the kestrel{session}x{index}quartz flew, 证书{session}过期了"
    return turn(content, index, tenant=tenant, session_id=f"s{session}", **fields)


def found_by_recall(settings: Settings, text: str, tenant: str = "acme") -> set[str]:
    answer = Recaller.open(settings).recall(Question(text, Scope(tenant), k=50))
    return {hit.session_id for hit in answer.hits}


@pytest.fixture
def system(live_settings: Settings) -> Stepped:
    """Ten sessions of two tenants are stored."""
    stepped = Stepped(live_settings)
    for tenant in ("acme", "o'brien"):
        stepped.push(*(said(session, index, tenant) for session in range(10) for index in range(4)))
    stepped.settle()
    assert stepped.counts() == (80, 80, 80)
    return stepped


def test_a_forgotten_session_is_in_no_file_and_no_key_and_all_else_is_there(system: Stepped) -> None:
    # What the two tenants say is the same here, so that of one must be told from that of the other.
    system.push(*(turn(f"only acme knows heron{index}basalt", 10 + index, tenant="acme", session_id="s3")
                  for index in range(4)))  # fmt: skip
    system.settle()
    assert holding(system.settings, "heron2basalt")
    report = forget(system.settings, S3)
    assert (report.turns, report.chunks, report.verified, report.problems) == (8, 8, True, ())
    assert report.search is not None
    assert report.search.pieces > 0
    assert [index for index in range(4) if holding(system.settings, f"heron{index}basalt")] == []
    assert "s3" not in found_by_recall(system.settings, "kestrel3x1quartz")
    assert "s3" in found_by_recall(system.settings, "kestrel3x1quartz", "o'brien")
    assert system.counts() == (76, 76, 76)
    assert kept_numbers(system.settings) == set()


def test_recall_returns_nothing_of_it_from_the_first_step_on(system: Stepped, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[set[str]] = []

    def look(step: str) -> None:
        if step != "hiding":
            seen.append(found_by_recall(system.settings, "kestrel3x1quartz"))

    forget(system.settings, S3, on_step=look)
    assert len(seen) > 4
    assert not any("s3" in sessions for sessions in seen)


def test_what_is_on_its_way_is_erased_wherever_it_is(system: Stepped, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(texts: object) -> None:
        if "heron-poison" in str(texts):
            raise PoisonError("it cannot be embedded")

    failing(system, monkeypatch, refuse)
    system.push(turn("heron-poison", 20, tenant="acme", session_id="s3"))
    system.settle()
    assert DeadLetters(system.client, system.settings).count() == 1
    system.push(turn("heron-read", 21, tenant="acme", session_id="s3"), said(4, 21))
    system.step()  # read, and waiting in RQ
    system.push(turn("heron-unread", 22, tenant="acme", session_id="s3"), said(4, 22))
    report = forget(system.settings, S3)
    assert (report.on_their_way, report.verified) == (3, True), report
    assert holding(system.settings, "heron-") == []
    assert DeadLetters(system.client, system.settings).count() == 0
    system.settle()
    assert system.left() == (0, 0)
    assert system.counts() == (78, 78, 78), "the others' turns, also those that were on their way with it"


def test_an_event_that_a_worker_has_in_hand_is_dropped_when_it_would_be_published(
    system: Stepped, monkeypatch: pytest.MonkeyPatch
) -> None:
    reports: list[Report] = []

    def while_embedding(texts: object) -> None:
        if not reports:
            reports.append(forget(system.settings, S3))

    failing(system, monkeypatch, while_embedding)
    system.push(turn("heron in flight", 20, tenant="acme", session_id="s3"), said(4, 20))
    system.settle()
    assert reports[0].verified
    assert system.left() == (0, 0)
    assert system.counts() == (77, 77, 77)
    assert holding(system.settings, "heron in flight") == []


def test_a_letter_buried_after_it_was_forgotten_stays_gone(system: Stepped, monkeypatch: pytest.MonkeyPatch) -> None:
    def forget_and_fail(texts: object) -> None:
        if "heron" in str(texts):
            forget(system.settings, S3)
            raise PoisonError("it cannot be embedded")

    failing(system, monkeypatch, forget_and_fail)
    system.push(turn("heron in flight", 20, tenant="acme", session_id="s3"))
    system.settle()
    assert DeadLetters(system.client, system.settings).count() == 0
    assert holding(system.settings, "heron") == []


def test_what_is_pushed_later_on_purpose_is_stored(system: Stepped) -> None:
    forget(system.settings, S3)
    system.push(said(3, 1))
    system.settle()
    assert "s3" in found_by_recall(system.settings, "kestrel3x1quartz")
    assert system.counts() == (77, 77, 77)
    again = forget(system.settings, S3)
    assert (again.turns, again.verified) == (1, True)
    assert system.counts() == (76, 76, 76)


def test_what_was_spooled_before_and_is_sent_later_is_dropped(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = settings.model_copy(update={"data_dir": tmp_path / "another machine", "redis_url": None})
    with EventStream(settings) as here:
        here.append([said(3, 1), said(4, 1)])
    with embedded_redis(settings):
        stepped = Stepped(settings)
        shared = elsewhere.model_copy(update={"redis_url": "unix:///nowhere.sock"})
        with EventStream(shared) as there:
            there.append([said(3, 2), said(4, 2)])
        report = forget(settings, S3)
        assert (report.on_their_way, report.verified) == (1, True)
        assert spooled(settings).events == 1, "the other session's turn waits as before"
        assert holding(settings, "kestrel3x1quartz") == []
        stepped.settle()
        spool = next((elsewhere.data_dir / "spool").iterdir())
        assert b"kestrel3x2quartz" in spool.read_bytes()
        # What that machine sends when it sees Redis again, with the moment when it was accepted there.
        monkeypatch.setattr("producers.spool._destination", lambda *_: ("unix:///nowhere.sock", "scope-recall", "live"))
        with closing(EventStream(elsewhere.model_copy(update={"redis_url": settings.redis_location}))) as there:
            assert there.send_spooled()
        stepped.settle()
        assert stepped.counts() == (2, 2, 2)
        assert found_by_recall(settings, "kestrel") == {"s4"}


def test_before_a_date_goes_by_what_was_said_then_or_else_accepted(system: Stepped) -> None:
    old, new = datetime(2020, 1, 1, tzinfo=UTC), datetime(2025, 1, 1, tzinfo=UTC)
    system.push(said(3, 30, created_at=old), said(3, 31, created_at=new), said(5, 30, created_at=old, agent_id="a"))
    system.settle()
    by_agent = forget(system.settings, Selection("acme", agent="a", before=new))
    assert (by_agent.turns, by_agent.verified) == (1, True)
    report = forget(system.settings, Selection("acme", before=new))
    assert (report.turns, report.verified) == (1, True)
    assert system.counts() == (81, 81, 81)


def test_a_whole_tenant_goes_and_the_other_stays(system: Stepped) -> None:
    report = forget(system.settings, Selection("acme"))
    assert (report.turns, report.verified) == (40, True)
    assert found_by_recall(system.settings, "kestrel3x1quartz") == set()
    assert system.counts() == (40, 40, 40)


def test_a_data_dir_whose_redis_does_not_run_is_erased_with_its_redis_files(settings: Settings) -> None:
    with embedded_redis(settings):
        system = Stepped(settings)
        system.push(said(3, 1), said(4, 1))
        system.settle()
        system.push(turn("heron unread", 20, tenant="acme", session_id="s3"))
    assert holding(settings, "heron unread")
    report = forget(settings, S3)
    assert (report.turns, report.on_their_way, report.verified) == (1, 1, True)
    assert holding(settings, "heron unread") + holding(settings, "kestrel3x1quartz") == []
    assert len(holding(settings, "kestrel4x1quartz")) > 0


def test_while_redis_is_away_it_is_hidden_and_the_rest_is_finished_later(
    live_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    system = Stepped(live_settings)
    system.push(said(3, 1), said(4, 1))
    system.settle()
    away = live_settings.model_copy(update={"redis_url": "redis://127.0.0.1:1"})
    monkeypatch.setattr(forgetting.redis_erasure, "PATIENCE", 2.0)
    waits: list[float] = []
    monkeypatch.setattr("redis.retry.sleep", waits.append)
    report = forget(away, S3)
    assert 2.0 < sum(waits) < 6.0, "Redis is waited for once"
    assert len(report.problems) == 1
    assert not report.verified
    assert "no Redis at redis://127.0.0.1:1" in report.problems[0]
    assert "--resume" in report.problems[0]
    assert found_by_recall(live_settings, "kestrel3x1quartz") == {"s4"}
    assert any("forgets not finished" in line for line in gather_status(live_settings)["degraded"])
    assert run_job("forget", live_settings, connect(live_settings)).after == {"finished": 1, "left": 0}
    assert holding(live_settings, "kestrel3x1quartz") == []
    assert not any("forgets" in line for line in gather_status(live_settings)["degraded"])
    assert resume(live_settings) == []


def test_a_byte_that_is_left_is_told_and_the_forget_stays_open(system: Stepped) -> None:
    forgotten = system.settings.data_dir / "logs" / "a copy of somebody's"
    forgotten.parent.mkdir(exist_ok=True)
    forgotten.write_text(said(3, 1).content, encoding="utf-8")
    forget(system.settings, Selection("o'brien", "s3"))  # who said the same
    report = forget(system.settings, S3)
    assert not report.verified
    assert report.search is not None
    assert report.search.found == (str(forgotten),)
    forgotten.unlink()
    (again,) = resume(system.settings)
    assert again.verified


def test_where_there_is_no_data_dir_nothing_is_made(settings: Settings) -> None:
    with pytest.raises(NotReady, match="no data dir"):
        forget(settings, S3)
    assert not settings.data_dir.exists()


def test_redis_keeps_no_key_of_a_forget(system: Stepped) -> None:
    keys: Any = system.client.keys("*")
    forget(system.settings, S3)
    after: Any = system.client.keys("*")
    assert set(after) <= set(keys)
    assert Keys(system.settings.key_prefix).stream("live").encode() in after


def test_when_nothing_can_be_kept_for_the_proof_nothing_is_forgotten_and_the_message_says_so(system: Stepped) -> None:
    blocked = system.settings.data_dir / "forgetting"
    blocked.write_text("in the way")  # as a full disk would be
    with pytest.raises(StoreUnavailable, match=r"nothing is forgotten yet: .*forgetting: .*then forget again"):
        forget(system.settings, S3)
    assert "s3" in found_by_recall(system.settings, "kestrel3x1quartz")
    assert resume(system.settings) == []
    blocked.unlink()
    assert forget(system.settings, S3).verified


def test_two_forgets_at_once_both_say_what_they_forgot(system: Stepped, monkeypatch: pytest.MonkeyPatch) -> None:
    others: list[Report] = []

    def forget_another(step: str) -> None:
        if step == "hiding":
            with monkeypatch.context() as patched:
                patched.setattr(forgetting.Erasure, "finish", lambda self, *, verify: [])
                others.append(forget(system.settings, Selection("acme", "s4")))

    first = forget(system.settings, S3, on_step=forget_another)
    assert (first.turns, first.verified) == (4, True)
    assert (others[0].turns, others[0].verified) == (4, False), "it had not come so far"
    assert "another process is at it" in others[0].problems[0]
    catalog = Catalog.open(system.settings.catalog_location)
    assert catalog.tombstones.done(others[0].number) == (others[0].number, 4, 4, True)
    catalog.close()


def test_what_a_kill_before_the_first_step_left_is_tidied_away(system: Stepped) -> None:
    proof.keep(system.settings, 7, ["the content of a turn that nobody has forgotten"])
    assert resume(system.settings) == []
    assert kept_numbers(system.settings) == set()
