"""Comparing and repairing a space's vector table, which ingest and recall never do. Does I/O on LanceDB."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from workers.stores.chunk_rows import KeyRange
from workers.stores.lance_connection import WRITER_CACHE, LanceConnection
from workers.stores.lance_filter import any_of, quoted
from workers.stores.lance_indexes import build, index_figures
from workers.stores.lance_schema import FACTS, KEY, TURN, add_facts_column, facts_field
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
        where = " AND ".join(_bounds(keys))
        ids: list[str] = self._lance.read(space, lambda table: _column(table, KEY, where), [])
        once: set[str] = set()
        doubled = {one for one in ids if one in once or once.add(one)}  # type: ignore[func-returns-value]
        return StoredKeys(once, doubled)

    def present(self, space: Space, vector_ids: Sequence[str]) -> set[str]:
        """Those of the ids that the table holds."""
        found: list[str] = self._lance.read(space, lambda table: _column(table, KEY, any_of(KEY, vector_ids)), [])
        return set(found)

    def add_columns(self, space: Space) -> None:
        """Give the table the columns that came later."""
        self._lance.write(space, add_facts_column)

    def without_facts(self, space: Space, keys: KeyRange) -> list[str]:
        """The ids in the range whose rows were written before there were facts."""
        where = " AND ".join([*_bounds(keys), f"{FACTS} IS NULL"])
        found: list[str] = self._lance.read(space, lambda table: _column(table, KEY, where), [])
        return found

    def write_facts(self, space: Space, facts: Mapping[str, Sequence[int]]) -> None:
        """Set the facts of rows that are there, by vector id; for whoever maintains alone (`StoreLocks.maintaining`).

        Where the key has an index, vectors and terms stay where they are, and so does what covers them.
        """
        import pyarrow as pa

        def merge(table: Any) -> None:
            if KEY in index_figures(table):
                # It loses the rows of each fragment that is merged into, and of one that it does not cover Lance
                # would move whole rows, out of every index.
                build(table, KEY, "btree", space.dimension)
            table.merge_insert(KEY).when_matched_update_all().execute(data)

        schema = pa.schema([pa.field(KEY, pa.string(), nullable=False), facts_field()])
        columns = [pa.array(list(facts)), pa.array(list(facts.values()), facts_field().type)]
        data = pa.Table.from_arrays(columns, schema=schema)
        if facts:
            self._lance.write(space, merge)

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


def _bounds(keys: KeyRange) -> list[str]:
    bounds = [f"{KEY} >= {quoted(keys.low)}"] if keys.low is not None else []
    return bounds + ([f"{KEY} < {quoted(keys.high)}"] if keys.high is not None else [])


def _column(table: Any, name: str, where: str) -> list[str]:
    # Both columns: an index could answer for the key alone, and a broken data file would not be noticed.
    query = table.search().select([KEY, TURN])
    values: list[str] = (query.where(where) if where else query).to_arrow()[name].to_pylist()
    return values
