"""What the catalog lets through by metadata and by the language of code, on every database."""

from __future__ import annotations

import json
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
LANGUAGES = (None, "python", "o'brien")


@pytest.fixture
def catalog(catalog_url: str) -> Iterator[Catalog]:
    opened = Catalog.open(catalog_url, create=True)
    opened.spaces.adopt(StoredSpace(SPACE, "hashing", None))
    yield opened
    opened.close()


def scoped(event: TurnEvent, *languages: str | None) -> ScopedTurn:
    return ScopedTurn(
        *(event.tenant, event.session_id, event.agent_id, event.role, event.source, event.tags, None, event.turn_index),
        metadata=json.dumps(event.metadata),
        code_languages=tuple(one for one in languages if one),
    )


def test_chunks_and_turns_come_back_as_the_scope_reads_plainly(catalog: Catalog) -> None:
    rng = random.Random(3)
    events = [
        TurnEvent(
            session_id="s",
            turn_index=number,
            role="user",
            content="0123456789" * 3,
            metadata={"git": {"branch": rng.choice(["main", "o'brien"])}, "n": [number % 3, "龙"]},
        )
        for number in range(60)
    ]
    writes, said = [], {}
    for event in events:
        spans = []
        for at in range(3):
            key = vector_id(SPACE.id, event.key, event.content_hash, at)
            said[key] = (event, rng.choice(LANGUAGES))
            kind = "code" if said[key][1] else "prose"
            spans.append(ChunkSpan(SPACE.id, key, at, 3, at * 10, at * 10 + 10, kind, said[key][1]))
        writes.append(TurnWrite(event, entry_order("1-0"), tuple(spans)))
    catalog.write([SPACE], writes)
    places = [(event.session_id, event.turn_index) for event in events]
    spoken = {one.key: [language for event, language in said.values() if event is one] for one in events}
    for _ in range(20):
        where = rng.choice([(), (("n", "1"),), (("n", "1"), ("n", "2"), ("git.branch", "o'brien")), (("n", "龙"),)])
        languages = rng.choice([(), ("Python",), ("python", "O'Brien"), ("go",)])
        scope = Scope("default", where=where, code_languages=languages)
        chunks = {key for key, (event, language) in said.items() if in_scope(scoped(event, language), scope)}
        assert catalog.hydrate(list(said), scope, SPACE).keys() == chunks
        turns = {event.key for event in events if in_scope(scoped(event, *spoken[event.key]), scope)}
        assert {one.turn_key for one in catalog.turns_at(places, scope, 9)} == turns
    every = catalog.turns_at(places, Scope("default"), 9, languages=True)
    assert {one.turn_key: set(one.turn.code_languages) for one in every} == {
        key: {one for one in languages if one} for key, languages in spoken.items()
    }
    one, *_ = said
    assert dict(catalog.chunk_rows.metadata([one, "0" * 32])) == {
        one: json.dumps(said[one][0].metadata, ensure_ascii=False)
    }
