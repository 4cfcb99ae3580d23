"""Whether the vector table can be read and holds the rows of what the catalog calls stored. Does I/O; reads only.

Without it a table that was lost would look like one in which nothing is found.
"""

from __future__ import annotations

import math
import random
import time

from workers.stores.catalog import Catalog
from workers.stores.chunk_rows import KeyRange
from workers.stores.scope import Scope
from workers.stores.space import Space
from workers.stores.tables import INDEXED
from workers.stores.vector_repair import VectorRepair
from workers.stores.vectors import VectorStore

LOOK_SECONDS = 30.0
"""Between two counts; one takes about 50 ms with a million chunks."""
SOME_KEYS = 500
"""Compared by a close look, which takes some 15 ms more than counting (100,000 rows)."""
KEY_SPACE = 1 << 32
"""Vector ids are hex digits of a hash, so their first eight are spread evenly."""
REPAIR = "`scope-recall maintain run reconcile` computes them again from the catalog, and so does the nightly run"


class Completeness:
    """Looks at one space now and then. Safe for several threads."""

    def __init__(self, catalog: Catalog, vectors: VectorStore, space: Space) -> None:
        self._catalog = catalog
        self._vectors = vectors
        self._space = space
        self._said: str | None = None
        self._next_look = 0.0

    def problem(self, *, suspicious: bool = False) -> str | None:
        """What is missing, for people, as of the last look; it is looked now when something is `suspicious`.

        Raises `StoreUnavailable`.
        """
        now = time.monotonic()
        if suspicious or self._said or now >= self._next_look:
            self._next_look = now + LOOK_SECONDS
            self._said = self._look()
        return self._said

    def close_look(self) -> str | None:
        """`problem`, now, and what counting does not show; too slow for recall.

        Rows that nobody needs can make up the number, so a random part of the keys is compared. Raises `StoreDamaged`
        when a data file is missing or cannot be opened.
        """
        said = self.problem(suspicious=True)
        if said:
            return said
        self._vectors.without_facts(self._space)  # it opens a data file of every fragment
        keys = some_keys(self._catalog.chunk_rows.count(self._space))
        looked, missing = self._compare(keys)
        if not missing:
            return None
        return f"of {looked:,} chunks looked up in the vector table {missing:,} are not there, nor found; {REPAIR}"

    def surplus(self) -> str | None:
        """Rows that belong to no chunk, for people; None while turns are being stored. Raises `StoreUnavailable`."""
        settled = self._catalog.chunk_rows.settled(self._space)
        rows = self._vectors.count(self._space) or 0
        if rows <= settled or settled != self._catalog.chunk_rows.count(self._space):
            return None
        return (
            f"the vector table has {rows:,} rows for {settled:,} chunks: recall returns nothing of the others, which "
            "take time and disk; `scope-recall maintain run reconcile` deletes them, and so does the nightly run"
        )

    def filter_problem(self, scope: Scope) -> str | None:
        """What `scope` cannot filter before ranking, for people. Raises `StoreUnavailable`."""
        rows = self._vectors.without_facts(self._space) if scope.where else 0
        if not rows:
            return None
        return (
            f"where: {rows:,} rows of the vector table are from before metadata could be filtered by, and may take the "
            "room of turns that match; `scope-recall maintain run reconcile` completes them, as the nightly run does"
        )

    def _look(self) -> str | None:
        chunks = self._catalog.chunk_rows.settled(self._space)
        rows = self._vectors.count(self._space)
        if (rows or 0) >= chunks:
            return None
        # Chunks go before their rows do: what is gone from the catalog by now was not missing.
        return judge(rows, min(chunks, self._catalog.chunk_rows.settled(self._space)))

    def _compare(self, keys: KeyRange) -> tuple[int, int]:
        """How many chunks of the range there are, and how many of them have no row though they must have one."""
        chunk_rows, repair = self._catalog.chunk_rows, VectorRepair(self._vectors.location)
        wanted = chunk_rows.keys(self._space, keys)
        missing = wanted.keys() - repair.keys(self._space, keys).ids
        if missing:
            # Chunks come and go before their rows do: judged are those that were stored before a second look and that
            # are in the catalog still after it.
            turns = self._catalog.known(sorted({wanted[key] for key in missing}))
            stored = {key for key in missing if (turn := turns.get(wanted[key])) and turn.state == INDEXED}
            missing = stored - repair.keys(self._space, keys).ids
            missing &= chunk_rows.keys(self._space, keys).keys()
        return len(wanted), len(missing)


def judge(rows: int | None, chunks: int) -> str | None:
    """What is to be said of a table with so many rows (None: there is none) for so many chunks. Pure."""
    if (rows or 0) >= chunks:
        return None
    if rows is None:
        return f"the vector table is gone, so none of {chunks:,} chunks is found; {REPAIR}"
    return f"the vector table has {rows:,} rows for {chunks:,} chunks, so not all are found; {REPAIR}"


def some_keys(chunks: int) -> KeyRange:
    """A random range that holds about `SOME_KEYS` of so many, or all of them when there are no more."""
    parts = max(1, math.ceil(chunks / SOME_KEYS))
    part = random.randrange(parts)
    low, high = (f"{number * KEY_SPACE // parts:08x}" for number in (part, part + 1))
    return KeyRange(low if part else None, high if part + 1 < parts else None)
