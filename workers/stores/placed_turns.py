"""Turns by where they stand in their conversation: those before and after a hit. Works on a connection; reads only."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.engine import Connection, RowMapping

from workers.stores.scope import Scope, ScopedTurn, in_scope
from workers.stores.tables import turns
from workers.stores.turn_writer import QUERY_VALUES

_SESSION = sa.column("session_id", sa.String)
_INDEX = sa.column("turn_index", sa.BigInteger)

Place = tuple[str, int]
"""(session_id, turn_index)."""


@dataclass(frozen=True)
class PlacedTurn:
    """A turn of the conversation, or as much of it as was asked for."""

    turn_key: str
    turn: ScopedTurn
    turn_index: int
    speaker: str | None
    text: str
    chars: int
    """Length of the whole turn in characters."""

    @property
    def place(self) -> Place:
        return (self.turn.session_id, self.turn_index)


def placed_turns(connection: Connection, places: Collection[Place], scope: Scope, chars: int) -> list[PlacedTurn]:
    """The turns in scope at these places, each with its first `chars` characters, in order of place."""
    content = sa.func.substr(turns.c.content, 1, chars).label("text")
    columns = [column for column in turns.c if column.name not in ("content", "metadata")]
    query = sa.select(*columns, content, sa.func.length(turns.c.content).label("chars"))
    found = []
    ordered = sorted(places)
    for start in range(0, len(ordered), QUERY_VALUES // 2):
        # Joined, since SQLite looks a pair in an IN list up by the tenant alone: 43 ms instead of 2 with 200,000 turns.
        wanted = sa.values(_SESSION, _INDEX, name="wanted").data(ordered[start : start + QUERY_VALUES // 2]).cte()
        same = sa.and_(turns.c.session_id == wanted.c.session_id, turns.c.turn_index == wanted.c.turn_index)
        here = query.select_from(wanted.join(turns, same)).where(turns.c.tenant == scope.tenant)
        found += [_placed(row) for row in connection.execute(here).mappings()]
    return sorted((one for one in found if in_scope(one.turn, scope)), key=lambda one: (one.place, one.turn_key))


def nth_newest(connection: Connection, tenant: str, session: str, number: int) -> int:
    """The index of the session's turn that is the `number`th from its end; 0 when it has fewer."""
    query = sa.select(turns.c.turn_index).where(turns.c.tenant == tenant, turns.c.session_id == session)
    found = connection.execute(query.order_by(turns.c.turn_index.desc()).offset(number - 1).limit(1)).scalar()
    return 0 if found is None else int(found)


def _placed(row: RowMapping) -> PlacedTurn:
    turn = ScopedTurn(
        tenant=row["tenant"],
        session_id=row["session_id"],
        agent_id=row["agent_id"],
        role=row["role"],
        source=row["source"],
        tags=tuple(json.loads(row["tags"])),
        created_at_us=row["created_at_us"],
        turn_index=row["turn_index"],
    )
    return PlacedTurn(row["turn_key"], turn, row["turn_index"], row["speaker"], row["text"], row["chars"])
