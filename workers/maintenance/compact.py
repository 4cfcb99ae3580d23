"""The job `compact`: joins small fragments, takes deleted rows out, removes old versions, where it pays. Does I/O.

LanceDB's one call for it folds new rows into the indexes as well (`VectorStore.optimize`). Where there is nothing to
join it only removes files.
"""

from __future__ import annotations

from dataclasses import asdict
from datetime import timedelta
from typing import Any

from workers.disk import shown_size
from workers.maintenance.every_space import every_space
from workers.maintenance.job import JobContext, Outcome
from workers.maintenance.room import check_room
from workers.stores.space import Space
from workers.stores.vectors import VectorStatistics, VectorStore

MAX_FRAGMENTS = 48
"""Each fragment costs a search .1 ms and an upsert .05 ms or more (measured up to 300)."""
ROWS_PER_FRAGMENT = 4096
"""A larger table may have more fragments than that, so that it is not rewritten for a few rows."""
MAX_DELETED_SHARE = 0.1
"""LanceDB rewrites a fragment when more of its rows are deleted; above it overall, one of them is such a fragment."""
MAX_SUPERSEDED_SHARE = 0.25
MIN_SUPERSEDED_BYTES = 8 << 20
"""Below either, old files may stay until something else is due."""


def keep_compact(context: JobContext) -> Outcome:
    """The job: `compact` over every stored space."""
    store = VectorStore(context.settings.vectors_location)
    keep_versions = timedelta(seconds=context.settings.keep_versions)
    return every_space(context, lambda stored: compact(store, stored.space, keep_versions=keep_versions))


def compact_reasons(statistics: VectorStatistics, superseded_bytes: int) -> tuple[str, ...]:
    """Why it pays to compact; nothing when it does not. Pure; cheap enough to ask after every batch."""
    reasons = []
    if statistics.fragments > max(MAX_FRAGMENTS, statistics.rows // ROWS_PER_FRAGMENT):
        reasons.append(f"{statistics.fragments:,} fragments")
    if _much_is_deleted(statistics):
        reasons.append(f"{statistics.deleted_rows:,} deleted rows")
    if superseded_bytes > max(MIN_SUPERSEDED_BYTES, statistics.size_bytes * MAX_SUPERSEDED_SHARE):
        reasons.append(f"{shown_size(superseded_bytes)} of old files")
    return tuple(reasons)


def compact(store: VectorStore, space: Space, *, keep_versions: timedelta) -> Outcome:
    """Compact the space's table if there is a reason to, while others read and write.

    One caller at a time: two would rewrite the same fragments and one of them in vain. Raises `StoreUnavailable`, also
    when the disk has no room for it.
    """
    statistics, superseded = store.statistics(space), store.superseded_bytes(space, keep_versions)
    before = _figures(statistics, superseded)
    reasons = compact_reasons(statistics, superseded)
    if not reasons:
        return Outcome(None, before, before)
    if statistics.fragments > 1 or _much_is_deleted(statistics):  # else files only go, and that makes room
        check_room(store.location, statistics.size_bytes)
    store.optimize(space, keep_versions=keep_versions)
    after = _figures(store.statistics(space), store.superseded_bytes(space, keep_versions))
    return Outcome(f"compacted for {', '.join(reasons)}: {after['fragments']:,} fragments now", before, after)


def _much_is_deleted(statistics: VectorStatistics) -> bool:
    return statistics.deleted_rows > MAX_DELETED_SHARE * (statistics.rows + statistics.deleted_rows)


def _figures(statistics: VectorStatistics, superseded_bytes: int) -> dict[str, Any]:
    return {**asdict(statistics), "superseded_bytes": superseded_bytes}
