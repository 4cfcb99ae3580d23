"""A catalog with turns in it and nothing beside it, for tests of what needs no vectors."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

from producers.events import TurnEvent
from served import settings_of
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


def fill_history(data_dir: Path) -> Path:
    """Store what was `SAID`; returns the data dir."""
    with closing(Catalog.open(settings_of(data_dir).catalog_location, create=True)) as catalog:
        store(catalog, SAID)
    return data_dir


ODD_SESSIONS = ["a/b", "turns", "a/turns/turns", "..", ".", "?x=1#y", "%2F", "a b+c", "会话 7", "x' OR '1'='1", "%"]
SAID = [
    event("deploy-7", 0, "user", "Which port does the Proxy use?", agent_id="ops", created_at=NOON),
    event("deploy-7", 1, "assistant", "Port 8443, since the move to ＴＬＳ.", agent_id="ops", speaker="Ada"),
    event("deploy-7", 2, "tool", "port " * 500, created_at=NOON + timedelta(days=1)),
    event("chat-2", 0, "user", "证书过期了，换证书。100% [red]sure[/red] \x1b[31m", source="chat"),
    *[event(session, 0, content=f"odd {session}") for session in ODD_SESSIONS],
    event("deploy-7", 0, "user", "swordfish port", tenant="other"),
    event("theirs", 0, "user", "swordfish port", tenant="other"),
]
