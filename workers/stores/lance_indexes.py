"""The indexes of a LanceDB table: which kinds there are, how each is built and asked, what covers what.

Does I/O through a table. An index is told by its column, not by its name: names have changed between versions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

from producers.events import utc_microseconds
from workers.stores.index_search import IndexSearch
from workers.stores.lance_schema import VECTOR
from workers.stores.terms import MAX_TERM_CHARS

IndexKind = Literal["full-text", "btree", "hnsw", "pq"]
"""`hnsw`: IVF_HNSW_SQ, a graph over vectors of one byte a dimension. `pq`: IVF_PQ, lists of far smaller codes."""
_KINDS: dict[str, IndexKind] = {"FTS": "full-text", "BTree": "btree", "IvfHnswSq": "hnsw", "IvfPq": "pq"}
"""By LanceDB's names."""

GRAPH_ROWS = 1 << 20
"""Rows of one HNSW graph: one for most tables, since each further one costs every search as much again."""
EDGES, FINE_EDGES = 20, 32
EF_CONSTRUCTION, FINE_EF_CONSTRUCTION = 150, 400
"""At 300, LanceDB's own number, 50,000 x 384 took 1.8 times as long and found no more (measured)."""
TRAINING_ROWS = 256
DIMENSIONS_PER_CODE, FINE_DIMENSIONS_PER_CODE = 8, 4
"""Of PQ; at LanceDB's own 16 the codes are too coarse for what refining can still repair."""


@dataclass(frozen=True)
class IndexFigures:
    """One index as LanceDB describes it."""

    kind: IndexKind
    """Of one that another program made: the kind that takes its place when it is built anew."""
    rows: int
    """Rows that it covers; a search scans the others, and finds them."""
    unindexed_rows: int
    segments: int
    """Parts that a search asks one after the other; each fold of new rows adds one to a vector index."""
    built_at_us: int | None
    """When its newest part was made from the start, microseconds since 1970."""


def index_figures(table: Any) -> dict[str, IndexFigures]:
    """The table's indexes by column."""
    return {
        column: IndexFigures(
            kind=_KINDS.get(index.index_type, "hnsw" if column == VECTOR else "btree"),
            rows=index.num_indexed_rows or 0,
            unindexed_rows=index.num_unindexed_rows or 0,
            segments=index.num_segments or 0,
            built_at_us=utc_microseconds(index.created_at),
        )
        for index in table.list_indices()
        for column in index.columns
    }


def build(table: Any, column: str, kind: IndexKind, dimension: int, *, fine: bool = False) -> None:
    """Build the index of `column` over all rows, in place of one that is there. `fine`: slower, and finds more."""
    rows = table.count_rows() if kind in ("hnsw", "pq") else 0
    table.create_index(column, config=index_config(kind, rows, dimension, fine=fine), replace=True)


def index_config(kind: IndexKind, rows: int, dimension: int, *, fine: bool = False) -> Any:
    """LanceDB's configuration of an index over `rows` rows; the last two matter for vectors only."""
    from lancedb.index import FTS, BTree, HnswSq, IvfPq

    if kind == "full-text":
        # Words are cut by workers.stores.terms; stop words stay, since function words are weighed down instead.
        longest = MAX_TERM_CHARS * 4 + 1  # bytes of UTF-8; Lance drops a token that reaches its limit
        return FTS(base_tokenizer="whitespace", max_token_length=longest, stem=True, remove_stop_words=False)
    if kind == "btree":
        return BTree()
    if kind == "hnsw":
        return HnswSq(
            distance_type="cosine",
            num_partitions=-(-rows // GRAPH_ROWS) or 1,
            m=FINE_EDGES if fine else EDGES,
            ef_construction=FINE_EF_CONSTRUCTION if fine else EF_CONSTRUCTION,
        )
    return IvfPq(
        distance_type="cosine",
        num_partitions=pq_partitions(rows),
        num_sub_vectors=pq_codes(dimension, FINE_DIMENSIONS_PER_CODE if fine else DIMENSIONS_PER_CODE),
    )


def pq_partitions(rows: int) -> int:
    """Lists of an IVF_PQ index: as many as each has rows, of as many rows at least as LanceDB learns a list from."""
    return max(1, min(math.isqrt(rows), rows // TRAINING_ROWS))


def pq_codes(dimension: int, per_code: int) -> int:
    """Codes of one vector: a whole number of dimensions each, about `per_code`."""
    return next(codes for codes in range(max(1, dimension // per_code), 0, -1) if dimension % codes == 0)


def with_search(query: Any, search: IndexSearch, limit: int) -> Any:
    """A vector query that asks the index as `search` says."""
    query = query.refine_factor(search.refine)
    if search.ef is not None:
        query = query.ef(max(search.ef, limit * search.refine))  # Lance refuses fewer than it is to name
    return query if search.nprobes is None else query.nprobes(search.nprobes)
