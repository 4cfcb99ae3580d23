"""Whole turns out of the catalog, for what is made of them anew. Works on a connection; opens nothing itself."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from producers.events import TurnEvent, from_utc_microseconds
from workers.stores.tables import turns
from workers.stores.turn_writer import slices


@dataclass(frozen=True)
class StoredTurn:
    """A turn as it was said, and the stream order of its current content."""

    event: TurnEvent
    entry_order: str
    state: str
    """`pending` or `indexed`."""


def stored_turns(connection: Connection, turn_keys: Sequence[str]) -> dict[str, StoredTurn]:
    """The turns by key; one that is not there is left out."""
    found = {}
    for keys in slices(turn_keys):
        for row in connection.execute(sa.select(turns).where(turns.c.turn_key.in_(keys))):
            found[row.turn_key] = StoredTurn(event_of(row), row.entry_order, row.state)
    return found


def event_of(row: sa.Row[Any]) -> TurnEvent:
    """The event that a whole row of `turns` was made of."""
    return TurnEvent(
        tenant=row.tenant,
        agent_id=row.agent_id,
        session_id=row.session_id,
        turn_index=row.turn_index,
        role=row.role,
        content=row.content,
        speaker=row.speaker,
        created_at=from_utc_microseconds(row.created_at_us),
        source=row.source,
        tags=tuple(json.loads(row.tags)),
        metadata=json.loads(row.metadata),
    )
