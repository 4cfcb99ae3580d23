"""The catalog: every turn once and its chunks. The truth: the vectors can be rebuilt from it.

Does I/O through SQLAlchemy Core. Times are microseconds since 1970 in UTC.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine, RowMapping

from workers.stores.api_keys import ApiKeys
from workers.stores.chunk_rows import ChunkRows
from workers.stores.engine import open_engine, reading, scrub, snapshot, write_transaction
from workers.stores.history import History
from workers.stores.imports import Imports
from workers.stores.locks import StoreLocks
from workers.stores.maintenance_runs import MaintenanceRuns
from workers.stores.placed_turns import Place, PlacedTurn, nth_newest, placed_turns, scoped_turn
from workers.stores.probes import Probes
from workers.stores.retention import Retention
from workers.stores.scope import Scope, ScopedTurn, in_scope
from workers.stores.space import Space
from workers.stores.space_filling import SpaceFilling
from workers.stores.spaces import Spaces, check_written
from workers.stores.stored_turns import StoredTurn, stored_turns
from workers.stores.tables import PENDING, chunks, spaces, turns
from workers.stores.tombstones import Tombstones
from workers.stores.turn_writer import KnownTurn, Outcome, TurnWrite, known_turns, mark_indexed, slices, write_turns


@dataclass(frozen=True)
class StoredChunk:
    """A chunk with its turn, as recall returns it."""

    vector_id: str
    turn_key: str
    turn: ScopedTurn
    turn_index: int
    speaker: str | None
    turn_chars: int
    """Length of the whole turn in characters."""
    text: str
    chunk_index: int
    total_chunks: int
    start: int
    end: int
    kind: str
    language: str | None

    @property
    def metadata(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.turn.metadata)
        return found


@dataclass(frozen=True)
class CatalogCounts:
    """Rows in the catalog."""

    turns: int
    chunks: int
    """Of the active space."""
    pending: int


class Catalog:
    """One open catalog. Safe for several threads; each call is one transaction."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.locks = StoreLocks(engine)
        self.tombstones = Tombstones(engine)
        self.chunk_rows = ChunkRows(engine)
        self.retention = Retention(engine)
        self.imports = Imports(engine)
        self.spaces = Spaces(engine)
        self.filling = SpaceFilling(engine)
        self.probes = Probes(engine)
        self.runs = MaintenanceRuns(engine)
        self.api_keys = ApiKeys(engine)
        self.history = History(engine)

    @classmethod
    def open(cls, location: str | Path, *, create: bool = False) -> Catalog:
        """Open it; with `create`, make or migrate it first. Errors as `open_engine`."""
        return cls(open_engine(location, create=create))

    def close(self) -> None:
        self._engine.dispose()

    def known(self, turn_keys: Sequence[str]) -> dict[str, KnownTurn]:
        """What the catalog holds of these identities; an unknown key is absent."""
        with reading(self._engine) as connection:
            return known_turns(connection, turn_keys)

    def stored_turns(self, turn_keys: Sequence[str]) -> dict[str, StoredTurn]:
        """The whole turns by key; one that is not there is left out."""
        with reading(self._engine) as connection:
            return stored_turns(connection, turn_keys)

    def write(self, spaces: Sequence[Space], writes: Sequence[TurnWrite]) -> list[Outcome]:
        """Store turns and chunks as pending, in one transaction; one outcome a write, in order.

        `spaces`: those that turns are written to, as the caller knows them; raises `StoreUnavailable` when they are
        others by now. A turn may lack chunks of one that is not active.
        Each write is judged again inside the transaction. A duplicate still raises the entry order, so that an older
        revision that arrives later stays older.
        """
        with write_transaction(self._engine) as connection:
            return write_turns(connection, check_written(connection, spaces), writes)

    def mark_indexed(self, pairs: Sequence[tuple[str, str]]) -> dict[str, str | None]:
        """Mark (turn_key, content_hash) as indexed where that content is still the current one.

        Returns the keys that hold another content by now, with its hash (None: the turn is gone).
        """
        with write_transaction(self._engine) as connection:
            return mark_indexed(connection, pairs)

    @contextmanager
    def unchanging(self, turn_keys: Sequence[str]) -> Iterator[dict[str, str | None]]:
        """The keys' current content hashes (None: the turn is gone), which nobody changes before the body has ended."""
        with write_transaction(self._engine) as connection:
            known = known_turns(connection, turn_keys)
            yield {key: known[key].content_hash if key in known else None for key in turn_keys}

    def hydrate(self, vector_ids: Sequence[str], scope: Scope, space: Space) -> dict[str, StoredChunk]:
        """The current chunks behind these vectors that `scope` may see; a forgotten or replaced one is absent."""
        found = {}
        # Only the chunk's own text leaves the database: a turn may be a thousand times larger.
        text = sa.func.substr(turns.c.content, chunks.c.start + 1, chunks.c.end - chunks.c.start).label("text")
        length = sa.func.length(turns.c.content).label("turn_chars")
        query = sa.select(chunks, text, length, *_TURN_COLUMNS).join(turns, chunks.c.turn_key == turns.c.turn_key)
        query = query.where(chunks.c.space_id == space.id, turns.c.tenant == scope.tenant)
        with reading(self._engine) as connection:
            for ids in slices(vector_ids):
                for row in connection.execute(query.where(chunks.c.vector_id.in_(ids))).mappings():
                    chunk = _stored_chunk(row)
                    if in_scope(chunk.turn, scope):
                        found[chunk.vector_id] = chunk
        return found

    def turns_at(
        self, places: Collection[Place], scope: Scope, chars: int, *, languages: bool = False
    ) -> list[PlacedTurn]:
        """The turns in scope at these places of its tenant, each with its first `chars` characters.

        With `languages` also those of their code, which a scope that asks for one gets anyway.
        """
        with reading(self._engine) as connection:
            return placed_turns(connection, places, scope, chars, languages=languages)

    def newest_hidden(self, scope: Scope, newest: Sequence[tuple[str, int]], until_us: int | None = None) -> Scope:
        """`scope` without the N newest turns, by index, of each (session_id, N), and without any that comes later.

        With `until_us` the newest of those that were said before then.
        """
        if not newest:
            return scope
        with reading(self._engine) as connection:
            bounds = [
                (session, nth_newest(connection, scope.tenant, session, number, until_us)) for session, number in newest
            ]
        return replace(scope, before_turns=(*scope.before_turns, *bounds))

    def chunks_of(self, turn_keys: Sequence[str], space: Space) -> dict[str, list[str]]:
        """The vector ids of each turn's chunks in the space; a turn that has none is left out."""
        found: dict[str, list[str]] = {}
        query = sa.select(chunks.c.turn_key, chunks.c.vector_id).where(chunks.c.space_id == space.id)
        query = query.order_by(chunks.c.turn_key, chunks.c.chunk_index)
        with reading(self._engine) as connection:
            for keys in slices(turn_keys):
                for row in connection.execute(query.where(chunks.c.turn_key.in_(keys))):
                    found.setdefault(row.turn_key, []).append(row.vector_id)
        return found

    def counts(self) -> CatalogCounts:
        """Rows: turns, chunks of the active space, and turns that are pending."""
        active = sa.select(spaces.c.id).where(spaces.c.state == "active").scalar_subquery()
        with reading(self._engine) as connection:
            return CatalogCounts(
                turns=_count(connection, sa.select(sa.func.count()).select_from(turns)),
                chunks=_count(connection, sa.select(sa.func.count()).where(chunks.c.space_id == active)),
                pending=_count(connection, sa.select(sa.func.count()).where(turns.c.state == PENDING)),
            )

    def recent_contents(self, limit: int) -> list[str]:
        """Contents of the turns stored last, newest first; for a look at what languages come in."""
        query = sa.select(turns.c.content).order_by(turns.c.entry_order.desc()).limit(limit)
        with reading(self._engine) as connection:
            return list(connection.execute(query).scalars())

    def vector_ids(self, space: Space) -> Iterator[str]:
        """Every vector id that the vector table of `space` must hold, in order."""
        query = sa.select(chunks.c.vector_id).where(chunks.c.space_id == space.id).order_by(chunks.c.vector_id)
        with reading(self._engine) as connection:
            yield from connection.execute(query.execution_options(yield_per=10_000)).scalars()

    def snapshot(self) -> AbstractContextManager[Connection]:
        """A connection that reads the catalog as it is now, for a copy of it; it holds nobody up."""
        return snapshot(self._engine)

    def scrub(self) -> None:
        """Leave no byte of deleted rows in the database's own files; it is rewritten, and writers wait meanwhile."""
        scrub(self._engine)


_TURN_COLUMNS = tuple(column for column in turns.c if column.name not in ("turn_key", "content"))


def _stored_chunk(row: RowMapping) -> StoredChunk:
    return StoredChunk(
        vector_id=row["vector_id"],
        turn_key=row["turn_key"],
        turn=scoped_turn(row, (row["language"],) if row["language"] else ()),
        turn_index=row["turn_index"],
        speaker=row["speaker"],
        turn_chars=row["turn_chars"],
        text=row["text"].strip(),  # a span also holds the white space around its text
        chunk_index=row["chunk_index"],
        total_chunks=row["total_chunks"],
        start=row["start"],
        end=row["end"],
        kind=row["kind"],
        language=row["language"],
    )


def _count(connection: Connection, query: sa.Select[Any]) -> int:
    return int(connection.execute(query).scalar_one())
