"""A catalog with turns in it and nothing beside it, for tests of what needs no vectors."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from producers.events import TurnEvent
from workers.order import order_at
from workers.stores.catalog import Catalog
from workers.stores.space import Space, vector_id
from workers.stores.spaces import StoredSpace
from workers.stores.turn_writer import ChunkSpan, TurnWrite

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
NOON_MS = int(NOON.timestamp() * 1000)
_SPACE = Space("hashing-v1", 64, 256, 32)


def event(session: str = "s", index: int = 0, role: str = "user", content: str = "said", **fields: object) -> TurnEvent:
    """A turn of tenant t, unless `fields` say otherwise."""
    said = {"tenant": "t", "session_id": session, "turn_index": index, "role": role, "content": content}
    return TurnEvent.model_validate({**said, **fields})


def store(catalog: Catalog, events: Sequence[TurnEvent], after_ms: int = 0) -> None:
    """Store them as accepted at noon and so much later, one each millisecond."""
    catalog.spaces.adopt(StoredSpace(_SPACE, "hashing", None))
    writes = []
    for number, one in enumerate(events):
        span = ChunkSpan(_SPACE.id, vector_id(_SPACE.id, one.key, one.content_hash, 0), 0, 1, 0, 1, "prose", None)
        writes.append(TurnWrite(one, order_at(NOON_MS + after_ms + number), (span,)))
    catalog.write([_SPACE], writes)
