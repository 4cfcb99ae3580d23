"""Keeps one space's vector table fast: joins fragments, folds new rows into the indexes, builds indexes. Does I/O.

Searches find every row whether or not this runs; without it they scan what no index covers. LanceDB 0.40 joins,
folds and cleans in one call, which rewrites every fragment below a million rows, so it is called only when it pays.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta

from producers.errors import StoreUnavailable
from producers.events import utc_microseconds
from workers.disk import free_bytes, shown_size
from workers.maintenance.job import JobContext, Outcome
from workers.stores.space import Space
from workers.stores.vectors import IndexKind, VectorStatistics, VectorStore

MAX_FRAGMENTS = 48
"""Each fragment costs a search .1 ms and an upsert .05 ms or more (measured up to 300)."""
ROWS_PER_FRAGMENT = 4096
"""A larger table may have more fragments than that, so that it is not rewritten for a few rows."""
MIN_UNINDEXED = 1024
"""Full-text search scans unindexed rows in scope at about 20 µs each, so that these cost 20 ms."""
MAX_UNINDEXED_SHARE = 0.05
"""Above it the rows are folded in; a share, so that all the rewriting together stays a fixed multiple of the data."""
MAX_UNINDEXED_AGE = timedelta(hours=6)
"""A few new rows are folded in after that at the latest, and what was replaced or deleted leaves the disk."""
VERSION_AGE = timedelta(minutes=10)
"""Versions older than this go; longer than any one search or commit lives on the version that it has opened."""

SCALAR_INDEX_MIN_ROWS = 20_000
"""Below it a scan of a column takes 2 ms."""
SCALAR_COLUMNS = ("vector_id", "turn_key", "tenant", "session_id")
"""By key for merges and look-ups; by tenant and session since a search inside a small one then reads only its vectors
(100,000 rows: 5 ms against 90 to 110; a tenant with most of the rows takes as long as before, with 1.5 times the CPU).
"""
RESERVED_BYTES = 64 << 20
"""Room that maintenance leaves: it can wait, and turns on their way into the stores cannot do without it."""
VECTOR_INDEX_MIN_ROWS = 200_000
"""Below it the exact scan answers in 200 ms or less on two cores; above it HNSW costs minutes to build, once."""


@dataclass(frozen=True)
class IndexWork:
    """What is worth doing now."""

    optimize: bool
    build: tuple[tuple[str, IndexKind], ...]
    """(column, kind) of each index that is missing."""

    def __bool__(self) -> bool:
        return self.optimize or bool(self.build)


def index_work(statistics: VectorStatistics, indexed: frozenset[str], *, now: datetime) -> IndexWork:
    """Decide from the figures alone. Pure; cheap enough to ask after every batch."""
    rows = statistics.rows
    wanted: list[tuple[str, IndexKind]] = [("terms", "full-text")] if rows else []
    if rows >= SCALAR_INDEX_MIN_ROWS:
        wanted += [(column, "btree") for column in SCALAR_COLUMNS]
    if rows >= VECTOR_INDEX_MIN_ROWS:
        wanted.append(("vector", "hnsw"))
    aged = (
        statistics.unindexed_rows > 0
        and statistics.indexed_at_us is not None
        and (utc_microseconds(now) or 0) - statistics.indexed_at_us > MAX_UNINDEXED_AGE / timedelta(microseconds=1)
    )
    return IndexWork(
        optimize=aged
        or statistics.fragments > max(MAX_FRAGMENTS, rows // ROWS_PER_FRAGMENT)
        or statistics.unindexed_rows > max(MIN_UNINDEXED, rows * MAX_UNINDEXED_SHARE),
        build=tuple((column, kind) for column, kind in wanted if column not in indexed),
    )


def _check_room(location: str, size_bytes: int) -> None:
    """A rewrite needs as much again as the newest version takes, until the version before it may go."""
    free = free_bytes(location)
    needed = size_bytes + RESERVED_BYTES
    if free is not None and free < needed:
        raise StoreUnavailable(
            f"index maintenance of {location} needs {shown_size(needed)} and its disk has {shown_size(free)}: "
            "it waits; every turn is found meanwhile, only more slowly. Free space there"
        )


def keep_active_indexes(context: JobContext) -> Outcome:
    """The job `index`: `keep_indexes` over the space that recall reads."""
    active = context.catalog.spaces.active()
    if active is None:
        return Outcome(None)
    with context.catalog.locks.maintaining():
        return keep_indexes(VectorStore(context.settings.vectors_location), active.space, now=datetime.now(UTC))


def keep_indexes(store: VectorStore, space: Space, *, now: datetime) -> Outcome:
    """Do what `index_work` finds, while others may read and write.

    One caller at a time: two would rewrite the same fragments and one of them in vain. Raises `StoreUnavailable`, also
    when the disk has no room for it: what a rewrite that fails has written may stay there, where there was least room.
    """
    before = store.statistics(space)
    work = index_work(before, store.indexed_columns(space), now=now)
    if not work:
        return Outcome(None, asdict(before), asdict(before))
    _check_room(store.location, before.size_bytes)
    did = []
    if work.optimize:
        store.optimize(space, keep_versions=VERSION_AGE)
        did.append("folded new rows into the indexes")
    for column, kind in work.build:
        store.build_index(space, column, kind)
        did.append(f"built the {kind} index of {column}")
    return Outcome("; ".join(did), asdict(before), asdict(store.statistics(space)))
