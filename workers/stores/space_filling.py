"""Which turns a space lacks, and bringing them in; and taking a space's chunks out. Does I/O on the catalog.

A turn is in a space when its first chunk is; its chunks are written together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine

from workers.stores.engine import reading, write_transaction
from workers.stores.space import Space
from workers.stores.tables import chunks, spaces, turns
from workers.stores.turn_writer import ChunkSpan, chunk_row, known_turns, slices

DROPPED_AT_ONCE = 5_000
"""Chunks deleted in one transaction, so that writers wait a moment and not minutes."""


@dataclass(frozen=True)
class SpaceFill:
    """A turn's chunks for a space that lacked them, made of this content."""

    turn_key: str
    content_hash: str
    chunks: tuple[ChunkSpan, ...]


class SpaceFilling:
    """Chunks by space in one catalog; each call is one transaction."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def filled_and_turns(self, space: Space) -> tuple[int, int]:
        """(turns that are in the space, turns)."""
        with reading(self._engine) as connection:
            return filled_and_turns(connection, space)

    def lacking(self, space: Space, after: str, limit: int) -> list[tuple[str, int]]:
        """(turn key, characters) of the next turns that are not in the space, in the order of their keys."""
        there = sa.exists().where(
            chunks.c.turn_key == turns.c.turn_key, chunks.c.space_id == space.id, chunks.c.chunk_index == 0
        )
        query = sa.select(turns.c.turn_key, sa.func.length(turns.c.content)).where(turns.c.turn_key > after, ~there)
        with reading(self._engine) as connection:
            rows = connection.execute(query.order_by(turns.c.turn_key).limit(limit))
            return [(key, chars) for key, chars in rows]

    def fill(self, space: Space, fills: Sequence[SpaceFill]) -> set[str]:
        """Add the chunks of turns that still say the same and are not in the space; returns the keys that are in now.

        Their vectors must be stored before: nobody looks for the vectors of a turn that is in the space.
        """
        keys = [one.turn_key for one in fills]
        with write_transaction(self._engine) as connection:
            state = connection.execute(sa.select(spaces.c.state).where(spaces.c.id == space.id)).scalar()
            if state in (None, "dropping"):
                return set()
            known = known_turns(connection, keys)
            there = _in_space(connection, space, keys)
            current = [one for one in fills if one.turn_key in known and _same(one, known[one.turn_key].content_hash)]
            fresh = [one for one in current if one.turn_key not in there]
            rows = [chunk_row(one.turn_key, span) for one in fresh for span in one.chunks]
            if rows:
                connection.execute(chunks.insert(), rows)
        return {one.turn_key for one in current}

    def delete_chunks(self, space: Space, after: str = "") -> str | None:
        """Delete the space's next chunks behind the vector id `after`; returns the last of them, None at the end."""
        query = sa.select(chunks.c.vector_id).where(chunks.c.space_id == space.id, chunks.c.vector_id > after)
        with write_transaction(self._engine) as connection:
            ids = list(connection.execute(query.order_by(chunks.c.vector_id).limit(DROPPED_AT_ONCE)).scalars())
            for some in slices(ids):
                connection.execute(chunks.delete().where(chunks.c.vector_id.in_(some)))
        return ids[-1] if ids else None


def filled_and_turns(connection: Connection, space: Space) -> tuple[int, int]:
    """The same on a connection; one statement, so that both figures are of one moment."""
    filled = sa.select(sa.func.count()).where(chunks.c.space_id == space.id, chunks.c.chunk_index == 0)
    total = sa.select(sa.func.count()).select_from(turns)
    row = connection.execute(sa.select(filled.scalar_subquery(), total.scalar_subquery())).one()
    return int(row[0]), int(row[1])


def _in_space(connection: Connection, space: Space, keys: Sequence[str]) -> set[str]:
    found: set[str] = set()
    for some in slices(keys):
        query = sa.select(chunks.c.turn_key).where(chunks.c.turn_key.in_(some), chunks.c.space_id == space.id)
        found.update(connection.execute(query).scalars())
    return found


def _same(fill: SpaceFill, content_hash: str) -> bool:
    return fill.content_hash == content_hash
