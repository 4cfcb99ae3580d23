"""What is too recent to recall, on every database: counted once, and left out wherever the catalog is asked."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from producers.events import TurnEvent
from workers.order import entry_order
from workers.stores.catalog import Catalog
from workers.stores.scope import Scope, ScopedTurn, in_scope
from workers.stores.space import Space, vector_id
from workers.stores.spaces import StoredSpace
from workers.stores.turn_writer import ChunkSpan, TurnWrite

pytestmark = pytest.mark.contract

SPACE = Space("hashing-v1", 64, 256, 32)


@pytest.fixture
def catalog(catalog_url: str) -> Iterator[Catalog]:
    opened = Catalog.open(catalog_url, create=True)
    opened.spaces.adopt(StoredSpace(SPACE, "hashing", None))
    yield opened
    opened.close()


def event(session: str, index: int, role: str = "user", tenant: str = "t") -> TurnEvent:
    said = {"tenant": tenant, "session_id": session, "turn_index": index, "role": role, "content": f"{session} {index}"}
    return TurnEvent.model_validate(said)


def store(catalog: Catalog, events: list[TurnEvent]) -> list[str]:
    writes = []
    for number, one in enumerate(events):
        made = vector_id(SPACE.id, one.identity.key, one.content_hash, 0)
        span = ChunkSpan(SPACE.id, made, 0, 1, 0, len(one.content), "prose", None)
        writes.append(TurnWrite(one, entry_order(f"{number + 1}-0"), (span,)))
    catalog.write([SPACE], writes)
    return [write.chunks[0].vector_id for write in writes]


def test_the_bound_is_the_index_of_the_nth_turn_from_the_end(catalog: Catalog) -> None:
    store(catalog, [event("s", index) for index in (4, 90, 7, 12)] + [event("s", 5000, tenant="other")])
    store(catalog, [event("s", 12, "assistant"), event("o'brien", 3)])
    scope = Scope("t", before_turns=(("x", 1),))
    for turns, bound in ((1, 90), (2, 12), (3, 12), (4, 7), (5, 4), (6, 0), (1_000_000, 0)):
        assert catalog.newest_hidden(scope, [("s", turns)]).before_turns == (("x", 1), ("s", bound))
    both = catalog.newest_hidden(scope, [("o'brien", 1), ("none", 2)])
    assert both == Scope("t", before_turns=(("x", 1), ("o'brien", 3), ("none", 0)))
    assert catalog.newest_hidden(scope, []) is scope


def test_hits_and_turns_at_a_place_are_those_that_the_scope_may_see(catalog: Catalog) -> None:
    rng = random.Random(5)
    events = [
        event(session, index, role, tenant)
        for session in ("s", "o'brien", "会话")
        for index in (0, 3, 4, 9)
        for role in ("user", "tool")
        for tenant in ("t", "u")
    ]
    ids = store(catalog, events)
    places = {(one.session_id, one.turn_index) for one in events}
    for _ in range(15):
        bounds = tuple(
            (rng.choice(["s", "o'brien", "会话", "none"]), rng.randint(0, 10)) for _ in range(rng.randint(0, 3))
        )
        scope = Scope(rng.choice("tu"), before_turns=bounds)
        expected = {one.identity.key for one in events if in_scope(scoped(one), scope)}
        assert {chunk.turn_key for chunk in catalog.hydrate(ids, scope, SPACE).values()} == expected
        assert {turn.turn_key for turn in catalog.turns_at(places, scope, 100)} == expected


def scoped(one: TurnEvent) -> ScopedTurn:
    return ScopedTurn(*(one.tenant, one.session_id, one.agent_id, one.role, one.source, one.tags, None, one.turn_index))
