"""Deleting the vectors of turns that say something else by now. Does I/O on both stores."""

from __future__ import annotations

from collections.abc import Sequence

from workers.stores.catalog import Catalog
from workers.stores.space import Space
from workers.stores.vectors import VectorStore


def remove_superseded(
    catalog: Catalog, vectors: VectorStore, spaces: Sequence[Space], turn_keys: Sequence[str]
) -> None:
    """Delete the rows of these turns that are not of their current content.

    Another process may be at a newer revision, so what is current must stay so until the others are deleted.
    """
    if turn_keys:
        with catalog.unchanging(turn_keys) as current:
            for space in spaces:
                vectors.delete_superseded(space, list(current.items()))
