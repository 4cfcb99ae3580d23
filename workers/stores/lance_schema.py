"""The vector table: its columns, and rows on their way into it. Pure but for the two functions that take a table;
imports pyarrow only inside functions.

The text itself is not stored: recall hydrates every hit from the catalog, and what is not here need not be erased here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workers.stores.terms import search_text

KEY = "vector_id"
TURN = "turn_key"
VECTOR = "vector"
TERMS = "terms"
"""Indexed by full-text search; made of `VectorRow.text` by `workers.stores.terms`."""
FACTS = "facts"
"""NULL in a row that was written before the table had it; `reconcile` fills it."""
PRIMARY_KEY_METADATA = {"lance-schema:unenforced-primary-key": "true"}
"""Without it concurrent `merge_insert`s of the same new keys both insert (lancedb#2463)."""


@dataclass(frozen=True)
class VectorRow:
    """One chunk, as recall filters and finds it."""

    vector_id: str
    turn_key: str
    content_hash: str
    entry_order: str
    """Zero-padded id of the stream entry it came with: a forget leaves what was accepted after it."""
    tenant: str
    agent_id: str | None
    session_id: str
    turn_index: int
    role: str
    source: str
    tags: tuple[str, ...]
    created_at_us: int | None
    """Microseconds since 1970 in UTC; None when the source gave no time."""
    kind: str
    """`prose` or `code`."""
    language: str | None
    """Of code, as its fence names it."""
    text: str
    vector: NDArray[np.float32]
    """Shape (dimension,), L2 norm 1."""
    facts: tuple[int, ...]
    """`fingerprints` of what the turn's metadata says."""


PLAIN_COLUMNS = tuple(field.name for field in fields(VectorRow) if field.name not in ("text", VECTOR, FACTS))


def table_schema(dimension: int) -> Any:
    """The pyarrow schema of a space's table."""
    import pyarrow as pa

    kinds = {
        "agent_id": pa.field("agent_id", pa.string()),
        "language": pa.field("language", pa.string()),
        "turn_index": pa.field("turn_index", pa.int64(), nullable=False),
        "created_at_us": pa.field("created_at_us", pa.int64()),
        "tags": pa.field("tags", pa.list_(pa.string())),
        KEY: pa.field(KEY, pa.string(), nullable=False, metadata=PRIMARY_KEY_METADATA),
    }
    plain = [kinds.get(name) or pa.field(name, pa.string(), nullable=False) for name in PLAIN_COLUMNS]
    return pa.schema(
        [
            *plain,
            pa.field(TERMS, pa.string(), nullable=False),
            pa.field(VECTOR, pa.list_(pa.float32(), dimension), nullable=False),
            facts_field(),  # last, as in a table that got it later
        ]
    )


def facts_field() -> Any:
    """The column of the facts."""
    import pyarrow as pa

    return pa.field(FACTS, pa.list_(pa.int64()))


def has_facts(table: Any) -> bool:
    """False of a table that was made before there were facts and not written to since."""
    return FACTS in table.schema.names


def add_facts_column(table: Any) -> None:
    """Give such a table the column, NULL in every row; no row is rewritten."""
    if not has_facts(table):
        table.add_columns(facts_field())


def to_arrow(rows: Sequence[VectorRow], dimension: int) -> Any:
    """The rows as a pyarrow table; of rows with one key the last counts, since a merge would insert them both.

    Raises `ValueError` for a vector that has another shape or is not finite: it was not computed (hindsight's zero
    vectors for 718 batches), and must not be stored.
    """
    import pyarrow as pa

    distinct = list({row.vector_id: row for row in rows}.values())
    for row in distinct:
        if row.vector.shape != (dimension,):
            raise ValueError(f"vector {row.vector_id}: shape {row.vector.shape}, but the space has ({dimension},)")
    matrix = np.stack([row.vector for row in distinct]).astype(np.float32, copy=False)
    usable = np.isfinite(matrix).all(axis=1) & matrix.any(axis=1)
    if not usable.all():
        bad = distinct[int(np.argmin(usable))].vector_id
        raise ValueError(f"vector {bad}: is zero or not finite; it was not computed")
    schema = table_schema(dimension)
    columns: list[Any] = [
        pa.array([getattr(row, name) for row in distinct], schema.field(name).type) for name in PLAIN_COLUMNS
    ]
    columns.append(pa.array([search_text(row.text) for row in distinct], pa.string()))
    columns.append(pa.FixedSizeListArray.from_arrays(pa.array(matrix.ravel()), dimension))
    columns.append(pa.array([row.facts for row in distinct], schema.field(FACTS).type))
    return pa.Table.from_arrays(columns, schema=schema)
