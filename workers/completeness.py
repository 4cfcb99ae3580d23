"""Whether the vector table has a row for every chunk that the catalog calls stored. Does I/O; reads only.

Without it a table that was lost would look like one in which nothing is found.
"""

from __future__ import annotations

import time

from workers.stores.catalog import Catalog
from workers.stores.scope import Scope
from workers.stores.space import Space
from workers.stores.vectors import VectorStore

LOOK_SECONDS = 30.0
"""Between two counts; one takes about 50 ms with a million chunks."""
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


def judge(rows: int | None, chunks: int) -> str | None:
    """What is to be said of a table with so many rows (None: there is none) for so many chunks. Pure."""
    if (rows or 0) >= chunks:
        return None
    if rows is None:
        return f"the vector table is gone, so none of {chunks:,} chunks is found; {REPAIR}"
    return f"the vector table has {rows:,} rows for {chunks:,} chunks, so not all are found; {REPAIR}"
