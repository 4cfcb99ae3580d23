"""Sessions, turns and texts out of every database, against the plain reading of a scope."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Iterator
from datetime import timedelta

import pytest

from filled_catalog import NOON, NOON_MS, event, store
from producers.errors import UsageError
from producers.events import TurnEvent, utc_microseconds
from workers.order import order_at
from workers.stores.catalog import Catalog
from workers.stores.history import SPEAKS, Part, StoredSession
from workers.stores.scope import Scope, ScopedTurn, in_scope
from workers.stores.selection import Selection

pytestmark = pytest.mark.contract

SESSIONS = ("s", "S", "o'brien", "x' OR '1'='1", "%", "会话")


@pytest.fixture
def catalog(catalog_url: str) -> Iterator[Catalog]:
    opened = Catalog.open(catalog_url, create=True)
    yield opened
    opened.close()


def many(seed: int = 3) -> list[TurnEvent]:
    rng = random.Random(seed)
    return [
        event(session, index, role, f"{session} {index} {role}", tenant=tenant,
              agent_id=rng.choice([None, "a", "a,b", "o'brien"]), source=rng.choice(["push", "%"]),
              created_at=rng.choice([None, NOON + timedelta(hours=rng.randint(-50, 50))]))
        for tenant in ("t", "T")
        for session in SESSIONS
        for index in (0, 2, 10, 7)
        for role in rng.sample(SPEAKS, 2)
    ]  # fmt: skip


def scoped(one: TurnEvent) -> ScopedTurn:
    said = utc_microseconds(one.created_at)
    return ScopedTurn(*(one.tenant, one.session_id, one.agent_id, one.role, one.source, one.tags, said, one.turn_index))


def in_order(events: list[TurnEvent]) -> list[TurnEvent]:
    return sorted(events, key=lambda one: (one.turn_index, SPEAKS.index(one.role)))


def test_every_answer_is_of_the_turns_that_the_scope_may_see(catalog: Catalog) -> None:
    events = many()
    store(catalog, events)
    rng = random.Random(7)

    def some(values: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(rng.sample(values, rng.choice([0, 0, 1, 2])))

    for _ in range(60):
        since = rng.choice([None, NOON - timedelta(hours=rng.randint(1, 60))])
        until = rng.choice([None, NOON + timedelta(hours=rng.randint(1, 60))])
        roles, agents, sources = some(SPEAKS), some(("a", "b", "o'brien")), some(("push", "%"))
        scope = Scope("t", some(SESSIONS), agents, roles, sources=sources, since=since, until=until)
        kept = [one for one in events if in_scope(scoped(one), scope)]
        found, total = catalog.history.sessions(scope, 100)
        assert {one.session_id: one.turns for one in found} == {
            name: sum(one.session_id == name for one in kept) for name in {one.session_id for one in kept}
        }
        assert total == len(found)
        assert catalog.history.count(scope, Part()) == len(kept)
        texts = sorted(one.content for one in kept)
        assert sorted(said.content for said in catalog.history.said(scope)) == texts
        assert sorted(one.content for one in catalog.history.turns(scope)) == texts


def test_a_session_has_its_times_and_agents_and_the_one_that_went_on_last_is_first(catalog: Catalog) -> None:
    store(
        catalog,
        [
            event("old", 0, created_at=NOON - timedelta(days=2), agent_id="b"),
            event("old", 1, created_at=NOON - timedelta(days=1), agent_id="a,b"),
            event("old", 2, agent_id="b", tenant="other"),
            event("new", 0, created_at=NOON + timedelta(days=1)),
            event("timeless", 0),  # accepted at noon
        ],
    )
    new = StoredSession("new", 1, NOON + timedelta(days=1), NOON + timedelta(days=1), ())
    timeless = StoredSession("timeless", 1, None, None, ())
    old = StoredSession("old", 2, NOON - timedelta(days=2), NOON - timedelta(days=1), ("a,b", "b"))
    assert catalog.history.sessions(Scope("t"), 10) == ([new, timeless, old], 3)
    assert catalog.history.sessions(Scope("t"), 1) == ([new], 3)
    assert catalog.history.sessions(Scope("none"), 1) == ([], 0)


def test_turns_come_whole_in_the_order_in_which_they_were_said(catalog: Catalog) -> None:
    full = event("s", 5, "tool", "x" * 5000, speaker="Ada", tags=["a", "b"], metadata={"n": {"m": [1]}}, source="push",
                 agent_id="a", created_at=NOON)  # fmt: skip
    events = [event("s", 90), full, event("s", 5, "system"), event("s", 5, "assistant"), event("s", 5), event("s", 12)]
    store(catalog, [*events, event("S", 5), event("s", 6, tenant="other")])
    mine, ordered = Scope("t", ("s",)), in_order(events)

    def turns(skip: int = 0, **part: int) -> list[TurnEvent]:
        return list(catalog.history.turns(mine, Part(**part), skip=skip))

    assert turns() == ordered
    assert turns(first=2) == ordered[:2]
    assert turns(last=2) == ordered[-2:]
    assert turns(last=100) == ordered
    assert turns(from_turn=5, to_turn=12, last=3) == ordered[2:5]
    assert turns(from_turn=13) == ordered[-1:]
    assert turns(2, first=3) == ordered[2:3]
    assert turns(1, last=3) == ordered[-2:]
    assert turns(100) == []
    assert catalog.history.count(mine, Part(5, 12)) == 5
    assert list(catalog.history.turns(Scope("t", ("s",), roles=("assistant",)))) == [ordered[2]]


def test_what_was_replaced_or_forgotten_is_in_no_answer(catalog: Catalog) -> None:
    store(catalog, [event(content="first words"), event("gone", content="secret"), event("kept", content="here")])
    store(catalog, [event(content="other words")], after_ms=1000)
    catalog.tombstones.bury(Selection("t", "gone"), lambda: order_at(NOON_MS + 1), lambda *_: None)
    found, total = catalog.history.sessions(Scope("t"), 10)
    assert ({one.session_id for one in found}, total) == ({"s", "kept"}, 2)
    assert catalog.tombstones.unfinished(), "hidden, and not yet erased"
    assert sorted(said.content for said in catalog.history.said(Scope("t"))) == ["here", "other words"]
    assert list(catalog.history.turns(Scope("t", ("gone",)))) == []
    assert catalog.history.count(Scope("t", ("gone",)), Part()) == 0


def test_every_turn_is_looked_at_with_few_of_them_in_memory(catalog: Catalog) -> None:
    store(catalog, [event("s", index, content=f"{index} " * 20_000) for index in range(300)])
    tracemalloc.start()
    chars = sum(len(said.content) for said in catalog.history.said(Scope("t")))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < chars / 2


def test_a_name_that_no_turn_can_have_is_refused_and_so_is_a_filter_that_is_not_known(catalog: Catalog) -> None:
    for scope in (Scope("a\0"), Scope("t", ("\ud800",)), Scope("t", agents=("\0",)), Scope("t", sources=("\0",))):
        with pytest.raises(UsageError, match="which no id can have"):
            catalog.history.sessions(scope, 1)
    for scope in (Scope("t", tags=("x",)), Scope("t", exclude_sessions=("x",)), Scope("t", before_turns=(("x", 1),))):
        with pytest.raises(ValueError, match="history filters by"):
            list(catalog.history.said(scope))


@pytest.mark.parametrize("part", [{"first": 1, "last": 1}, {"from_turn": 2, "to_turn": 1}, {"to_turn": 2**63}])
def test_a_part_that_is_none_is_refused(part: dict[str, int]) -> None:
    with pytest.raises(UsageError, match=r"first and last|turns \d"):
        Part(**part)
