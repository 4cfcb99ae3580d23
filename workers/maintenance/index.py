"""The job `index`: folds new rows into the indexes, builds the ones that pay, sees that the vector index finds. I/O.

Searches find every row whether or not this runs; without it they scan what no index covers, also while one is built.
A fold is LanceDB's one call for all upkeep (`VectorStore.optimize`), which joins fragments and drops versions as well.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from producers.events import utc_microseconds
from producers.settings import Settings
from workers.maintenance.every_space import every_space
from workers.maintenance.index_quality import keep_quality
from workers.maintenance.job import JobContext, Outcome
from workers.maintenance.room import check_room
from workers.stores.catalog import Catalog
from workers.stores.index_search import IndexSearch
from workers.stores.lance_indexes import IndexFigures, IndexKind
from workers.stores.lance_schema import TERMS, VECTOR
from workers.stores.spaces import StoredSpace
from workers.stores.vectors import VectorStatistics, VectorStore

MIN_UNINDEXED = 1024
"""Full-text search scans unindexed rows in scope at about 20 µs each, so that these cost 20 ms."""
MAX_UNINDEXED_SHARE = 0.05
"""Above it the rows are folded in; a share, so that all the rewriting together stays a fixed multiple of the data."""
MAX_UNINDEXED_AGE = timedelta(hours=6)
"""A few new rows are folded in after that at the latest."""

SCALAR_INDEX_MIN_ROWS = 20_000
"""Below it a scan of a column takes 2 ms."""
SCALAR_COLUMNS = ("vector_id", "turn_key", "tenant", "session_id")
"""By key for merges and look-ups; by tenant and session since a search inside a small one then reads only its vectors
(100,000 rows: 5 ms against 90 to 110; a tenant with most of the rows takes as long as before, with 1.5 times the CPU).
"""

VECTOR_INDEX_MIN_BYTES = 100_000 * 384 * 4
"""Of vectors. Below it the exact scan answers in 100 ms or less on two cores; above it HNSW costs minutes, once."""
PQ_MIN_BYTES = 4_000_000 * 384 * 4
"""Above it a graph takes an hour to build, and PQ, which finds less and must refine more, minutes."""
REBUILD_UNINDEXED_SHARE = 0.5
"""Above it a vector index is built anew instead of folded."""
REBUILD_GROWTH = 2.0
"""So is one whose table has grown by this since: partitions and value ranges were learnt from what was there."""
MAX_SEGMENTS = 16
"""Each fold leaves a vector index one part more, which every search asks (.5 to 2 ms each), and fragments that
different parts cover are never joined."""
CHECK_GROWTH = 1.25
CHECK_AGE = timedelta(days=7)
"""Recall is measured after a build, and again after either."""


@dataclass(frozen=True)
class IndexWork:
    """What is worth doing now."""

    build: tuple[tuple[str, IndexKind], ...]
    """(column, kind) of each index that is missing or to be built anew."""
    fold: bool
    check: bool
    """Whether the vector index's recall is to be measured."""

    def __bool__(self) -> bool:
        return self.pressing or self.check

    @property
    def pressing(self) -> bool:
        """Whether searches are slower until it is done."""
        return self.fold or bool(self.build)


def vector_kind(rows: int, dimension: int) -> IndexKind | None:
    """The index that vectors of this number and size ask for; None: an exact scan is good enough. Pure."""
    size = rows * dimension * 4
    return None if size < VECTOR_INDEX_MIN_BYTES else "hnsw" if size < PQ_MIN_BYTES else "pq"


def index_work(
    statistics: VectorStatistics,
    indexes: Mapping[str, IndexFigures],
    dimension: int,
    search: IndexSearch,
    *,
    now: datetime,
) -> IndexWork:
    """Decide from the figures alone. Pure; cheap enough to ask after every batch."""
    rows = statistics.rows
    wanted: list[tuple[str, IndexKind]] = [(TERMS, "full-text")] if rows else []
    if rows >= SCALAR_INDEX_MIN_ROWS:
        wanted += [(column, "btree") for column in SCALAR_COLUMNS]
    build = [(column, kind) for column, kind in wanted if column not in indexes]
    vector = indexes.get(VECTOR)
    kind = vector_kind(rows, dimension) or (vector.kind if vector else None)  # a table that shrank keeps its index
    if kind is not None and (vector is None or _outgrown(vector, rows, search)):
        build.append((VECTOR, kind))
    built = {column for column, _ in build}
    unindexed = max((one.unindexed_rows for column, one in indexes.items() if column not in built), default=0)
    aged = (
        statistics.unindexed_rows > 0
        and statistics.indexed_at_us is not None
        and _age(statistics.indexed_at_us, now) > MAX_UNINDEXED_AGE
    )
    return IndexWork(
        build=tuple(build),
        fold=aged or unindexed > max(MIN_UNINDEXED, rows * MAX_UNINDEXED_SHARE),
        check=VECTOR in built or (vector is not None and _unchecked(vector, rows, search, now)),
    )


def _outgrown(vector: IndexFigures, rows: int, search: IndexSearch) -> bool:
    return (
        vector.unindexed_rows > rows * REBUILD_UNINDEXED_SHARE
        or vector.segments > MAX_SEGMENTS
        or (search.trained_rows is not None and rows > search.trained_rows * REBUILD_GROWTH)
    )


def _unchecked(vector: IndexFigures, rows: int, search: IndexSearch, now: datetime) -> bool:
    if search.checked_at_us is None or search.checked_rows is None:
        return True
    # Only a build leaves one part: a forget builds indexes anew, and a killed run has not come to its check.
    built_since = vector.segments == 1 and (vector.built_at_us or 0) > search.checked_at_us
    return built_since or rows > search.checked_rows * CHECK_GROWTH or _age(search.checked_at_us, now) > CHECK_AGE


def _age(moment_us: int, now: datetime) -> timedelta:
    return timedelta(microseconds=(utc_microseconds(now) or 0) - moment_us)


def keep_every_index(context: JobContext) -> Outcome:
    """The job: `keep_indexes` over every stored space."""
    store, settings, catalog = VectorStore(context.settings.vectors_location), context.settings, context.catalog
    return every_space(context, lambda stored: keep_indexes_of(stored, store, catalog, settings))


def keep_indexes_of(stored: StoredSpace, store: VectorStore, catalog: Catalog, settings: Settings) -> Outcome:
    """`keep_indexes` as the settings say, with the catalog to remember how the vector index is to be asked."""
    policy = Policy(timedelta(seconds=settings.keep_versions), settings.index_recall_floor)
    save = catalog.spaces.set_search
    return keep_indexes(store, stored, policy, now=datetime.now(UTC), save=lambda found: save(stored.space, found))


@dataclass(frozen=True)
class Policy:
    """What the settings say."""

    keep_versions: timedelta
    recall_floor: float


def keep_indexes(
    store: VectorStore,
    stored: StoredSpace,
    policy: Policy,
    *,
    now: datetime,
    save: Callable[[IndexSearch], object],
) -> Outcome:
    """Do what `index_work` finds, while others may read and write; `save` keeps how the vector index is to be asked.

    One caller at a time: two would rewrite the same fragments and one of them in vain. Raises `StoreUnavailable`, also
    when the disk has no room for it.
    """
    space, search = stored.space, stored.search
    before, indexes = store.statistics(space), store.indexes(space)
    work = index_work(before, indexes, space.dimension, search, now=now)
    if not work:
        figures = _figures(before, indexes, search)
        return Outcome(None, figures, figures)
    if work.pressing:
        check_room(store.location, before.size_bytes)
    did = []
    for column, kind in work.build:  # first, so that the fold has nothing to add to an index that is built anew
        store.build_index(space, column, kind, fine=search.fine)
        did.append(f"built the {kind} index of {column}")
        if column == VECTOR:
            search = IndexSearch(trained_rows=before.rows, fine=search.fine)
            save(search)
    if work.fold:
        store.optimize(space, keep_versions=policy.keep_versions)
        did.append("folded new rows into the indexes")
    measured: dict[str, Any] = {}
    vector = store.indexes(space).get(VECTOR)
    if work.check and vector is not None:
        search, measured, said = keep_quality(store, space, vector.kind, search, policy.recall_floor)
        save(search)
        did += said
    after = _figures(store.statistics(space), store.indexes(space), search)
    return Outcome("; ".join(did), _figures(before, indexes, stored.search), {**after, **measured})


def _figures(statistics: VectorStatistics, indexes: Mapping[str, IndexFigures], search: IndexSearch) -> dict[str, Any]:
    vector = indexes.get(VECTOR)
    if vector is None:
        return {**asdict(statistics), "vector_index": None}
    asked = {name: getattr(search, name) for name in ("recall", "refine", "ef", "nprobes", "fine")}
    return {**asdict(statistics), "vector_index": vector.kind, "vector_segments": vector.segments, **asked}
