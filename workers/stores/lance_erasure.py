"""Erasing rows from the bytes of a LanceDB table, which deleting them alone does not do. Does I/O through a table.

A delete marks rows in a file beside the fragment, and compaction leaves a fragment alone while few of its rows are
marked. So the rows beside them are moved: an update writes them into new fragments, the old ones have no row left, and
`drop_history` deletes their files.
"""

from __future__ import annotations

import warnings
from datetime import timedelta
from pathlib import Path
from typing import Any

FRAGMENT_BITS = 32
"""A row id is the fragment's number and, in the lower bits, the row's place in it."""
MAX_RANGES = 200
"""Fragments named in one filter; a table with more marks than that is moved as a whole."""
EVERY_ROW, NO_ROW = "true", "false"


def erase_rows(table: Any, where: str) -> int:
    """Delete the matching rows, and move every row that shares a fragment with one that was ever deleted."""
    found = table.search().select(["vector_id"]).with_row_id(True).where(where).to_arrow()
    marked = _marked_fragments(table)
    if found.num_rows:
        table.delete(where)
    if marked is None:
        beside = EVERY_ROW
    else:
        fragments = sorted(marked | {row >> FRAGMENT_BITS for row in found["_rowid"].to_pylist()})
        beside = _in_fragments(fragments) if len(fragments) <= MAX_RANGES else EVERY_ROW
    if beside:
        table.update(where=beside, values_sql={"entry_order": "entry_order"})
    return int(found.num_rows)


def drop_history(table: Any) -> None:
    """Leave no file but the newest version's."""
    with warnings.catch_warnings():
        # LanceDB warns that others may still read or write; the caller has seen to that.
        warnings.simplefilter("ignore", UserWarning)
        table.optimize(cleanup_older_than=timedelta(0), delete_unverified=True)


def _in_fragments(fragments: list[int]) -> str:
    return " OR ".join(
        f"(_rowid >= {number << FRAGMENT_BITS} AND _rowid < {(number + 1) << FRAGMENT_BITS})" for number in fragments
    )


def _marked_fragments(table: Any) -> set[int] | None:
    """Fragments that have a file of deleted rows, in any version; None where files cannot be listed.

    A file is named FRAGMENT-VERSION-ID.
    """
    folder = Path(table.uri)
    if not folder.is_dir():
        return None
    return {int(path.name.partition("-")[0]) for path in (folder / "_deletions").glob("*-*-*.*")}
