"""Comparing and repairing a space's vector table, which ingest and recall never do. Does I/O on LanceDB."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from workers.stores.chunk_rows import KeyRange
from workers.stores.lance_connection import WRITER_CACHE, LanceConnection
from workers.stores.lance_filter import any_of, quoted
from workers.stores.lance_schema import KEY, TURN
from workers.stores.space import Space


class StoredKeys(NamedTuple):
    """The rows of a range: every vector id, and those that are there more than once."""

    ids: set[str]
    doubled: set[str]


class VectorRepair:
    """Errors as `VectorStore`; a table that cannot be read for good raises `StoreDamaged`."""

    def __init__(self, location: str) -> None:
        self._lance = LanceConnection(location, WRITER_CACHE)

    def keys(self, space: Space, keys: KeyRange) -> StoredKeys:
        """What the table holds in the range."""
        bounds = [f"{KEY} >= {quoted(keys.low)}"] if keys.low is not None else []
        bounds += [f"{KEY} < {quoted(keys.high)}"] if keys.high is not None else []
        ids: list[str] = self._lance.read(space, lambda table: _column(table, KEY, " AND ".join(bounds)), [])
        once: set[str] = set()
        doubled = {one for one in ids if one in once or once.add(one)}  # type: ignore[func-returns-value]
        return StoredKeys(once, doubled)

    def present(self, space: Space, vector_ids: Sequence[str]) -> set[str]:
        """Those of the ids that the table holds."""
        found: list[str] = self._lance.read(space, lambda table: _column(table, KEY, any_of(KEY, vector_ids)), [])
        return set(found)

    def turn_keys(self, space: Space, vector_ids: Sequence[str]) -> set[str]:
        """Whose rows these are."""
        where = any_of(KEY, vector_ids)
        found: list[str] = self._lance.read(space, lambda table: _column(table, TURN, where), [])
        return set(found)

    def delete(self, space: Space, vector_ids: Sequence[str]) -> None:
        """Delete the rows of these ids."""
        if vector_ids:
            self._lance.write(space, lambda table: table.delete(any_of(KEY, vector_ids)))

    def delete_doubled(self, space: Space, vector_ids: Sequence[str]) -> int:
        """Leave one row of each id; returns how many went. For whoever has both stores alone: row ids move."""

        def delete(table: Any) -> int:
            query = table.search().select([KEY]).with_row_id(True).where(any_of(KEY, vector_ids)).to_arrow()
            kept = dict(zip(query[KEY].to_pylist(), query["_rowid"].to_pylist(), strict=True))
            surplus = [row for row in query["_rowid"].to_pylist() if row not in set(kept.values())]
            if surplus:
                table.delete(f"_rowid IN ({', '.join(map(str, surplus))})")
            return len(surplus)

        return self._lance.write(space, delete) or 0

    def discard(self, space: Space) -> None:
        """Drop the table, whatever is left of it; whoever has it open sees that it is gone."""
        self._lance.connect().drop_table(space.id, ignore_missing=True)


def _column(table: Any, name: str, where: str) -> list[str]:
    # Both columns: an index could answer for the key alone, and a broken data file would not be noticed.
    query = table.search().select([KEY, TURN])
    values: list[str] = (query.where(where) if where else query).to_arrow()[name].to_pylist()
    return values
