"""Which turns the rules no longer keep, over real databases: the SQL agrees with a plain reading of the rules."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as examples
from hypothesis import strategies as st

from producers.events import TurnEvent
from producers.retention import RetentionRule
from workers.order import milliseconds_of, order_at
from workers.stores import retention as judging
from workers.stores.catalog import Catalog
from workers.stores.space import Space, vector_id
from workers.stores.spaces import StoredSpace
from workers.stores.stored_turns import StoredTurn
from workers.stores.turn_writer import ChunkSpan, TurnWrite

pytestmark = pytest.mark.contract

SPACE = Space("hashing", 64, 64, 8)
NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
DAYS = st.sampled_from([1, 2.5, 4, 7])
TENANTS, SOURCES, SESSIONS = ["a", "o'brien", "*x"], ["push", "hermes", "%"], ["s", "s2", "会话"]


@pytest.fixture
def catalog(catalog_url: str) -> Iterator[Catalog]:
    opened = Catalog.open(catalog_url, create=True)
    opened.spaces.adopt(StoredSpace(SPACE, "hashing", None))
    yield opened
    opened.close()


def write(days_ago: float, *, accepted_days_ago: float = 0.0, **fields: Any) -> TurnWrite:
    """A turn said so many days ago; `said=False`: it does not say when, and was accepted then."""
    said = fields.pop("said", True)
    event = TurnEvent.model_validate({"tenant": "a", "session_id": "s", "role": "user", "turn_index": 0, **fields,
                                      "content": "a turn", "created_at": _ago(days_ago) if said else None})  # fmt: skip
    accepted = _ago(accepted_days_ago if said else days_ago)
    span = ChunkSpan(SPACE.id, vector_id(SPACE.id, event.key, event.content_hash, 0), 0, 1, 0, 6, "prose", None)
    return TurnWrite(event, order_at(int(accepted.timestamp() * 1000)), (span,))


def _ago(days: float) -> datetime:
    return NOW - timedelta(days=days)


def bury_all(catalog: Catalog, rules: Sequence[RetentionRule]) -> int:
    """All pieces, as the job takes them; returns how many turns went."""
    number, gone = None, 0
    for span in catalog.retention.spans():
        for piece in catalog.retention.pieces(rules, NOW, span):
            buried = catalog.retention.bury(rules, NOW, span, piece, number, lambda *_: None)
            assert buried is not None
            number, gone = buried.number, gone + buried.turns
    return gone


def due_plainly(turns: Sequence[StoredTurn], rules: Sequence[RetentionRule]) -> dict[str, tuple[int, str]]:
    """(rule, reason) of every turn that is due, by a plain reading of docs/maintenance.md."""
    sessions = defaultdict(list)
    for turn in turns:
        sessions[turn.event.tenant, turn.event.session_id].append(turn)
    due = {}
    for within in sessions.values():
        last = max(map(_said, within))
        governed = defaultdict(list)
        for turn in within:
            number = _rule(turn.event, rules)
            if number is not None:
                governed[number].append(turn)
        for number, mine in governed.items():
            rule = rules[number]
            mine.sort(key=lambda turn: (-turn.event.turn_index, -_said(turn).timestamp(), turn.event.key))
            for place, turn in enumerate(mine):
                if rule.max_age_days is not None and _said(turn) < _ago(rule.max_age_days):
                    due[turn.event.key] = (number, "age")
                elif rule.ended_days is not None and last < _ago(rule.ended_days):
                    due[turn.event.key] = (number, "ended")
                elif rule.max_turns is not None and place >= rule.max_turns:
                    due[turn.event.key] = (number, "turns")
    return due


def _said(turn: StoredTurn) -> datetime:
    return turn.event.created_at or datetime.fromtimestamp(milliseconds_of(turn.entry_order) / 1000, UTC)


def _rule(event: TurnEvent, rules: Sequence[RetentionRule]) -> int | None:
    for tenant, source in ((event.tenant, event.source), (event.tenant, "*"), ("*", event.source), ("*", "*")):
        for number, rule in enumerate(rules):
            if (rule.tenant, rule.source) == (tenant, source):
                return number
    return None


RULE = st.builds(
    RetentionRule,
    tenant=st.sampled_from([*TENANTS, "*"]),
    source=st.sampled_from([*SOURCES, "*"]),
    max_age_days=st.none() | DAYS,
    max_turns=st.integers(1, 4),
    ended_days=st.none() | DAYS,
)
TURN = st.fixed_dictionaries(
    {
        "days_ago": st.sampled_from([0, 1, 1.5, 2.5, 3, 4, 6, 7, 8]),
        "said": st.booleans(),
        "tenant": st.sampled_from(TENANTS),
        "source": st.sampled_from(SOURCES),
        "session_id": st.sampled_from(SESSIONS),
        "turn_index": st.integers(0, 5),
        "role": st.sampled_from(["user", "assistant"]),
    }
)


@examples(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(TURN, max_size=30), st.lists(RULE, max_size=4, unique_by=lambda rule: (rule.tenant, rule.source)))
def test_exactly_the_turns_that_a_plain_reading_of_the_rules_names_are_due_and_go(
    catalog: Catalog, turns: list[dict[str, Any]], rules: list[RetentionRule]
) -> None:
    with catalog._engine.begin() as connection:
        for table in ("chunks", "turns", "doomed", "tombstones"):
            connection.exec_driver_sql(f"DELETE FROM {table}")
    writes = {one.event.key: one for one in (write(**turn) for turn in turns)}
    catalog.write([SPACE], list(writes.values()))
    stored = catalog.stored_turns(list(writes))
    due = due_plainly(list(stored.values()), rules)
    counted = Counter({(one.rule, one.tenant, one.source, one.reason): one.turns
                       for one in catalog.retention.due(rules, NOW)})  # fmt: skip
    assert counted == Counter(
        (rule, stored[key].event.tenant, stored[key].event.source, reason) for key, (rule, reason) in due.items()
    )
    assert bury_all(catalog, rules) == len(due)
    assert set(catalog.stored_turns(list(writes))) == writes.keys() - due.keys()
    assert {key for keys in catalog.retention.doomed() for key in keys} == due.keys()
    counts = catalog.counts()
    assert counts.chunks == counts.turns == len(writes) - len(due)


def test_a_turn_goes_only_when_it_is_older_than_the_limit(catalog: Catalog) -> None:
    catalog.write([SPACE], [write(30, turn_index=0), write(30 + 1e-9, turn_index=1)])
    catalog.write([SPACE], [write(30, said=False, turn_index=2), write(30 + 1e-7, said=False, turn_index=3)])
    assert bury_all(catalog, [RetentionRule(max_age_days=30)]) == 2
    assert catalog.counts().turns == 2


def test_many_turns_go_in_pieces_under_one_tombstone(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judging, "PIECE", 7)
    monkeypatch.setattr(judging, "SESSIONS", 3)
    monkeypatch.setattr(judging, "DOOMED_PAGE", 10)
    catalog.write([SPACE], [write(9, turn_index=n, session_id=f"s{n % 10}") for n in range(95)])
    catalog.write([SPACE], [write(1, turn_index=n, session_id=f"s{n}") for n in range(95, 100)])
    assert bury_all(catalog, [RetentionRule(max_age_days=3)]) == 95
    (found,) = catalog.tombstones.unfinished()
    assert (found.turns, found.chunks, found.selection) == (95, 95, None)
    assert sum(len(keys) for keys in catalog.retention.doomed()) == 95
    assert catalog.retention.unfinished() == [found.tombstone.id]
    catalog.tombstones.finish(found.tombstone.id)
    assert list(catalog.retention.doomed()) == []
    assert catalog.retention.unfinished() == []


def test_a_run_of_many_pieces_takes_what_its_dry_run_counts_where_sessions_mix_sources(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(judging, "PIECE", 7)
    rules = [RetentionRule(source="hermes", max_age_days=10), RetentionRule(source="push", ended_days=30)]
    old = [write(40, turn_index=n, session_id=f"s{n % 5}") for n in range(50)]
    later = [write(12, turn_index=50 + n, session_id=f"s{n % 5}", source="hermes") for n in range(50)]
    catalog.write([SPACE], old + later)
    assert sum(one.turns for one in catalog.retention.due(rules, NOW)) == 50
    assert bury_all(catalog, rules) == 50
    assert catalog.stored_turns([one.event.key for one in old]).keys() == {one.event.key for one in old}


def test_what_comes_late_is_stored_and_goes_again_with_the_next_run(catalog: Catalog) -> None:
    rules = [RetentionRule(max_age_days=3)]
    late = write(9, accepted_days_ago=8)
    catalog.write([SPACE], [late])
    assert bury_all(catalog, rules) == 1
    assert catalog.write([SPACE], [replace(late, accepted=order_at(0))]) == ["new"]
    assert bury_all(catalog, rules) == 1, "also while the first one is not erased yet"
    assert sum(len(keys) for keys in catalog.retention.doomed()) == 1


def test_a_session_that_has_gone_on_since_it_was_looked_at_has_not_ended(catalog: Catalog) -> None:
    rules = [RetentionRule(ended_days=3)]
    catalog.write([SPACE], [write(9, turn_index=n) for n in range(5)])
    (span,) = catalog.retention.spans()
    (piece,) = catalog.retention.pieces(rules, NOW, span)
    catalog.write([SPACE], [write(0, turn_index=5, source="another source")])
    assert catalog.retention.bury(rules, NOW, span, piece, None, lambda *_: None) is None
    assert catalog.counts().turns == 6
    assert catalog.tombstones.unfinished() == []


def test_without_rules_nothing_is_due(catalog: Catalog) -> None:
    catalog.write([SPACE], [write(9000)])
    assert catalog.retention.due([], NOW) == []
