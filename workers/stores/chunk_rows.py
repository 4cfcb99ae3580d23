"""The catalog's chunks as the vector table must have them, for comparing the two. Does I/O on the catalog."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine, Row

from workers.stores.engine import reading, write_transaction
from workers.stores.space import Space
from workers.stores.tables import PENDING, chunks, spaces, turns
from workers.stores.turn_writer import ChunkSpan, slices

PAGE = 500


@dataclass(frozen=True)
class KeyRange:
    """Vector ids from `low` up to but not including `high`; None has no bound."""

    low: str | None
    high: str | None


class ChunkRows:
    """The chunks of one catalog; each call is one transaction."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def any(self, space: Space) -> bool:
        """Whether the space has a chunk."""
        query = sa.select(chunks.c.vector_id).where(chunks.c.space_id == space.id).limit(1)
        with reading(self._engine) as connection:
            return connection.execute(query).first() is not None

    def settled(self, space: Space) -> int:
        """Chunks of the space whose vectors must be in its table: all but those of pending turns."""
        rows = sa.func.count()
        waiting = sa.select(rows).select_from(chunks.join(turns, chunks.c.turn_key == turns.c.turn_key))
        waiting = waiting.where(turns.c.state == PENDING, chunks.c.space_id == space.id)
        with reading(self._engine) as connection:
            return _count(connection, space) - int(connection.execute(waiting).scalar_one())

    def count(self, space: Space) -> int:
        """Chunks of the space."""
        with reading(self._engine) as connection:
            return _count(connection, space)

    def keys(self, space: Space, keys: KeyRange) -> dict[str, str]:
        """Turn key by vector id, of every chunk of the space in the range."""
        query = sa.select(chunks.c.vector_id, chunks.c.turn_key).where(chunks.c.space_id == space.id)
        if keys.low is not None:
            query = query.where(chunks.c.vector_id >= keys.low)
        if keys.high is not None:
            query = query.where(chunks.c.vector_id < keys.high)
        with reading(self._engine) as connection:
            return {row.vector_id: row.turn_key for row in connection.execute(query)}

    def from_key(self, space: Space, low: str, limit: int) -> dict[str, str]:
        """Turn key by vector id, of the first `limit` chunks of the space from `low` on."""
        query = sa.select(chunks.c.vector_id, chunks.c.turn_key)
        query = query.where(chunks.c.space_id == space.id, chunks.c.vector_id >= low).order_by(chunks.c.vector_id)
        with reading(self._engine) as connection:
            return {row.vector_id: row.turn_key for row in connection.execute(query.limit(limit))}

    def spans(self, vector_ids: Sequence[str]) -> dict[str, tuple[str, ChunkSpan]]:
        """(turn key, span) of each chunk; one that is not there any more is left out."""
        found = {}
        with reading(self._engine) as connection:
            for ids in slices(vector_ids):
                for row in connection.execute(sa.select(chunks).where(chunks.c.vector_id.in_(ids))):
                    found[row.vector_id] = (row.turn_key, _span(row))
        return found

    def metadata(self, vector_ids: Sequence[str]) -> Iterator[tuple[str, str]]:
        """(vector id, metadata of its turn as JSON) of each chunk."""
        query = sa.select(chunks.c.vector_id, turns.c.metadata).join(turns, chunks.c.turn_key == turns.c.turn_key)
        with reading(self._engine) as connection:
            for ids in slices(vector_ids):
                for row in connection.execute(query.where(chunks.c.vector_id.in_(ids))):
                    yield row.vector_id, row.metadata

    @contextmanager
    def unchanging(self, space: Space, vector_ids: Sequence[str]) -> Iterator[set[str]]:
        """Those of the ids that a chunk of the space has; nobody adds or removes one before the body has ended."""
        with write_transaction(self._engine) as connection:
            there: set[str] = set()
            for ids in slices(vector_ids):
                query = sa.select(chunks.c.vector_id).where(chunks.c.vector_id.in_(ids), chunks.c.space_id == space.id)
                there.update(connection.execute(query).scalars())
            yield there

    def pending(self) -> Iterator[Mapping[tuple[str, str], list[tuple[str, str]]]]:
        """Turns that are pending, some at a time: (turn key, content hash) → (space id, vector id) of every chunk."""
        query = sa.select(turns.c.turn_key, turns.c.content_hash).where(turns.c.state == PENDING)
        query = query.order_by(turns.c.turn_key).limit(PAGE)
        last = ""
        while True:
            with reading(self._engine) as connection:
                found = {
                    row.turn_key: (row.turn_key, row.content_hash)
                    for row in connection.execute(query.where(turns.c.turn_key > last))
                }
                if not found:
                    return
                page: dict[tuple[str, str], list[tuple[str, str]]] = {pair: [] for pair in found.values()}
                for row in connection.execute(sa.select(chunks).where(chunks.c.turn_key.in_(list(found)))):
                    page[found[row.turn_key]].append((row.space_id, row.vector_id))
            yield page
            last = max(found)


def _count(connection: Connection, space: Space) -> int:
    alone = connection.execute(sa.select(sa.func.count()).select_from(spaces)).scalar_one() == 1
    query = sa.select(sa.func.count()).select_from(chunks)
    # Without the condition SQLite counts in an index, a tenth of the table: 1,000,000 in some 50 ms.
    return int(connection.execute(query if alone else query.where(chunks.c.space_id == space.id)).scalar_one())


def _span(row: Row[tuple[object, ...]]) -> ChunkSpan:
    return ChunkSpan(
        space_id=row.space_id,
        vector_id=row.vector_id,
        index=row.chunk_index,
        total=row.total_chunks,
        start=row.start,
        end=row.end,
        kind=row.kind,
        language=row.language,
    )
