"""Takes a space out of both stores when nobody will go back to it. Does I/O; each step can be repeated."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

from workers.stores.catalog import Catalog
from workers.stores.space import Space
from workers.stores.spaces import StoredSpace
from workers.stores.vectors import VectorStore

SHORTEST_STANDBY = timedelta(minutes=5)
"""A service that answers questions goes on with the space before until its new model is loaded."""


def due(stored: StoredSpace, standby_days: float, now: datetime) -> bool:
    """Whether it is time to drop this space. Pure."""
    if stored.state == "dropping":
        return True
    kept = max(timedelta(days=standby_days), SHORTEST_STANDBY)
    return stored.state == "standby" and stored.since is not None and now - stored.since >= kept


def drop(catalog: Catalog, vectors: VectorStore, space: Space, go_on: Callable[[], bool]) -> bool:
    """Drop the space; False when `go_on` ended it, and the next call goes on. Raises `StoreUnavailable`."""
    catalog.spaces.retire(space)
    after: str | None = ""
    while after is not None:
        if not go_on():
            return False
        after = catalog.filling.delete_chunks(space, after)
    with catalog.locks.erasing():  # a batch that was begun before may still be on its way to the table
        vectors.drop(space)
    catalog.spaces.remove(space)
    return True
