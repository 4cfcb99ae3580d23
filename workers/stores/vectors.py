"""The vector store on LanceDB: one table per embedding space, dense and lexical search inside a scope. Does I/O.

It can be rebuilt from the catalog at any time, and says nothing final: every candidate is hydrated from the catalog.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import numpy as np
from numpy.typing import NDArray

from producers.crash_points import Point, reached
from producers.errors import PoisonError, StoreUnavailable
from workers.stores.index_search import DEFAULT_SEARCH, IndexSearch
from workers.stores.lance_connection import CacheBytes, LanceConnection
from workers.stores.lance_erasure import NO_ROW, drop_history, erase_rows
from workers.stores.lance_files import superseded_bytes
from workers.stores.lance_filter import any_of, scope_filter, selection_filter
from workers.stores.lance_indexes import IndexFigures, IndexKind, build, index_figures
from workers.stores.lance_schema import (
    FACTS,
    KEY,
    TERMS,
    TURN,
    VECTOR,
    VectorRow,
    add_facts_column,
    has_facts,
    to_arrow,
)
from workers.stores.lance_search import Candidate, nearest, sharing, steady
from workers.stores.scope import Scope
from workers.stores.selection import Selection
from workers.stores.space import Space
from workers.stores.terms import question_terms


@dataclass(frozen=True)
class VectorStatistics:
    """Figures of one space's table."""

    rows: int
    unindexed_rows: int
    """Rows that full-text search still scans; they are found, only more slowly."""
    fragments: int
    size_bytes: int
    """Data and index files of the newest version."""
    deleted_rows: int = 0
    """Rows that were deleted or replaced and are still in the data files; at most one a fragment too few."""
    indexed_at_us: int | None = None
    """When the full-text index last took rows in, microseconds since 1970; None without one."""


@dataclass(frozen=True)
class Sample:
    """A stored vector, and whose it is."""

    tenant: str
    vector: NDArray[np.float32]


class VectorStore:
    """Vectors and search terms by space. Connects when first used; reading creates nothing.

    Every method raises `StoreUnavailable` when LanceDB fails, after the retries that make sense.
    """

    def __init__(self, location: str, cache: CacheBytes | None = None, behind: timedelta = timedelta(0)) -> None:
        """`location`: a folder, or an object store's URI. `cache` None: as much as LanceDB likes. `behind`: how old
        what is read may be."""
        self.location = location
        self._lance = LanceConnection(location, cache, behind)
        self._searchable: dict[str, Any] = {}
        """The handle of each table that is known to have its full-text index; a table that is lost comes as another."""

    def connect(self) -> None:
        """Load LanceDB and connect now rather than when first used; makes the folder."""
        self._lance.connect()

    def open(self, space: Space) -> None:
        """Load LanceDB and open the space's table now rather than at the first search; creates nothing.

        What is wrong with the table is for the search to say.
        """
        with suppress(StoreUnavailable):
            self._lance.read(space, lambda table: None, None)

    def upsert(self, space: Space, rows: Sequence[VectorRow]) -> None:
        """Insert the rows, or replace those of the same `vector_id`; repeating it changes nothing.

        Raises `PoisonError` for a vector that does not fit the space or was not computed.
        """
        if not rows:
            return
        try:
            data = to_arrow(rows, space.dimension)
        except ValueError as error:
            raise PoisonError(str(error)) from None

        def merge(table: Any) -> Any:
            add_facts_column(table)
            reached(Point.MID_LANCE_UPSERT)
            merging = table.merge_insert(KEY).when_matched_update_all().when_not_matched_insert_all()
            # With an index on the key Lance no longer sees that another merge inserted the same keys (measured on
            # 0.40: every one of them twice); without it the later merge conflicts and is repeated. As fast at 200,000.
            merging.use_index(False).execute(data)
            return table

        table = self._lance.write(space, merge, create=True)
        if self._searchable.get(space.id) is not table:
            # After the first rows: an index built on an empty table would never cover one (haiku.rag#591).
            if TERMS not in self.indexed_columns(space):
                self.build_index(space, TERMS, "full-text")
            self._searchable[space.id] = table

    def delete_superseded(self, space: Space, current: Sequence[tuple[str, str | None]]) -> None:
        """For each (turn_key, content_hash): delete the turn's rows of other contents; of all contents for None."""
        if not current:
            return
        wanted = dict(current)
        columns = [KEY, TURN, "content_hash"]

        def look_up(table: Any) -> list[dict[str, str]]:
            rows: list[dict[str, str]] = _all_rows(table, any_of(TURN, wanted), columns).to_pylist()
            return rows

        found: list[dict[str, str]] = self._lance.read(space, look_up, [])
        # Looked up first, since most often nothing is stale, and each delete commits a version.
        stale = [row[KEY] for row in found if row["content_hash"] != wanted[row[TURN]]]
        if stale:
            self._lance.write(space, lambda table: table.delete(any_of(KEY, stale)))

    def dense(
        self,
        space: Space,
        vector: NDArray[np.float32],
        scope: Scope,
        limit: int,
        how: IndexSearch = DEFAULT_SEARCH,
        *,
        exact: bool = False,
    ) -> list[Candidate]:
        """The chunks in scope nearest to `vector`, shape (dimension,); the score is the cosine, in [-1, 1].

        `how` the index is asked where there is one: `Spaces.search` knows. `exact`: every row is compared instead.
        """

        def search(table: Any) -> list[Candidate]:
            where = scope_filter(scope, facts=not scope.where or has_facts(table))
            return steady(nearest(table, vector, where, limit, None if exact else how))

        return self._lance.read(space, search, []) if limit > 0 else []

    def lexical(self, space: Space, query: str, scope: Scope, limit: int) -> list[Candidate]:
        """The chunks in scope that share words with `query`; the score is BM25 (k1 1.2, b 0.75).

        A word's weight comes from the whole table, as in Lucene: a word that other tenants use often counts for less.
        """
        content, function = question_terms(query)
        words = content or function  # a match on function words alone is one on nearly every text
        if limit <= 0 or not words:
            return []

        def search(table: Any) -> list[Candidate]:
            where = scope_filter(scope, facts=not scope.where or has_facts(table))
            return steady(sharing(table, words, where, limit))

        return self._lance.read(space, search, [])

    def vectors_of(self, space: Space, vector_ids: Sequence[str]) -> dict[str, NDArray[np.float32]]:
        """The stored vectors, shape (dimension,) each; an id that is not stored is left out."""

        def fetch(table: Any) -> dict[str, NDArray[np.float32]]:
            found = _all_rows(table, any_of(KEY, vector_ids), [KEY, VECTOR])
            flat = found[VECTOR].combine_chunks().flatten().to_numpy(zero_copy_only=False)
            return dict(zip(found[KEY].to_pylist(), flat.reshape(-1, space.dimension), strict=True))

        return self._lance.read(space, fetch, {}) if vector_ids else {}

    def keys(self, space: Space) -> Iterator[str]:
        """Every `vector_id` of the space as of now, in no order; for checks."""

        found: list[str] = self._lance.read(space, lambda table: _all_rows(table, None, [KEY])[KEY].to_pylist(), [])
        yield from found

    def count(self, space: Space) -> int | None:
        """Rows of the space's table; None where there is no table. About a millisecond."""
        rows: int | None = self._lance.read(space, lambda table: table.count_rows(), None)
        return rows

    def without_facts(self, space: Space) -> int:
        """Rows that `Scope.where` cannot tell apart, since they were written before the table had facts."""
        unknown = f"{FACTS} IS NULL"
        rows: int = self._lance.read(space, lambda table: table.count_rows(unknown if has_facts(table) else None), 0)
        return rows

    def statistics(self, space: Space) -> VectorStatistics:
        """Figures of the space's table; zeros where there is none."""

        def measure(table: Any) -> VectorStatistics:
            figures = table.stats()
            rows, fragments = figures["num_rows"], figures["fragment_stats"]
            full_text = index_figures(table).get(TERMS)
            return VectorStatistics(
                rows=rows,
                unindexed_rows=rows if full_text is None else full_text.unindexed_rows,
                fragments=fragments["num_fragments"],
                size_bytes=figures["total_bytes"],
                # A fragment's length counts its deleted rows; their mean is rounded down.
                deleted_rows=max(0, fragments["num_fragments"] * fragments["lengths"]["mean"] - rows),
                indexed_at_us=None if full_text is None else full_text.built_at_us,
            )

        return self._lance.read(space, measure, VectorStatistics(0, 0, 0, 0))

    def indexes(self, space: Space) -> dict[str, IndexFigures]:
        """The table's indexes by column."""
        return self._lance.read(space, index_figures, {})

    def indexed_columns(self, space: Space) -> frozenset[str]:
        """Columns that have an index."""
        return frozenset(self.indexes(space))

    def build_index(self, space: Space, column: str, kind: IndexKind, *, fine: bool = False) -> None:
        """Build the index of `column` over all rows, in place of one that is there. `fine`: slower, and finds more."""
        self._lance.write(space, lambda table: build(table, column, kind, space.dimension, fine=fine))

    def superseded_bytes(self, space: Space, keep_versions: timedelta) -> int:
        """Bytes that `optimize` would free, at least; 0 on an object store."""
        return self._lance.read(space, lambda table: superseded_bytes(table, keep_versions), 0)

    def sample(self, space: Space, count: int, seed: int) -> list[Sample]:
        """Up to `count` stored vectors, the same for the same seed and table."""

        def draw(table: Any) -> list[Sample]:
            rows = table.count_rows()
            offsets = np.random.default_rng(seed).choice(rows, min(count, rows), replace=False)
            found = table.take_offsets(sorted(offsets.tolist())).select(["tenant", VECTOR]).to_arrow()
            vectors = [np.array(vector, np.float32) for vector in found[VECTOR].to_pylist()]
            return [Sample(tenant, vector) for tenant, vector in zip(found["tenant"].to_pylist(), vectors, strict=True)]

        return self._lance.read(space, draw, [])

    def erase(self, space: Space, selection: Selection, cutoff: str) -> int:
        """Delete what was accepted up to `cutoff` and is selected, from the newest version's files; returns how many.

        Older versions and the indexes hold it still: `rebuild_indexes`, then `drop_history`. For whoever has the
        stores to himself (`StoreLocks.erasing`).
        """
        where = selection_filter(selection, cutoff)
        return self._lance.write(space, lambda table: erase_rows(table, where)) or 0

    def erase_deleted(self, space: Space) -> None:
        """Have the newest version's files hold nothing of what was deleted before; the rest as `erase`."""
        self._lance.write(space, lambda table: erase_rows(table, NO_ROW))

    def rebuild_indexes(self, space: Space, *, fine: bool = False) -> None:
        """Build every index anew: one that is only folded keeps the words and vectors of deleted rows."""
        for column, index in sorted(self.indexes(space).items()):
            self.build_index(space, column, index.kind, fine=fine)

    def drop_history(self, space: Space) -> None:
        """Delete every file that the newest version does not need, also what an interrupted write left.

        A search that began before may fail and is repeated; a write would be lost, so this is for whoever has the
        stores to himself (`StoreLocks.erasing`).
        """
        self._lance.write(space, drop_history)

    def drop(self, space: Space) -> None:
        """Delete the space's whole table; for one that nobody writes to any more."""
        self._lance.drop(space)
        self._searchable.pop(space.id, None)

    def optimize(self, space: Space, *, keep_versions: timedelta) -> None:
        """Join small fragments, fold new rows into every index, drop versions older than `keep_versions`.

        LanceDB 0.40 does all three in one call. It joins neighbours below a million rows that the same parts of the
        same indexes cover, moves rows out of a fragment of which a tenth is deleted, and rewrites nothing else.
        """
        self._lance.write(space, lambda table: table.optimize(cleanup_older_than=keep_versions))


def _all_rows(table: Any, where: str | None, columns: list[str]) -> Any:
    """`columns` of every matching row, as a pyarrow table."""
    query = table.search().select(columns)
    return (query.where(where) if where else query).to_arrow()
