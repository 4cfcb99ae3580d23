"""Asks for `index` or `compact` as soon as ingest has made it worth doing, between the scheduled runs. Does I/O."""

from __future__ import annotations

from datetime import UTC, datetime

import redis

from producers.errors import StoreUnavailable
from producers.logs import get_logger
from producers.settings import Settings
from workers.maintenance.compact import compact_reasons
from workers.maintenance.index import index_work
from workers.queues import MAINTENANCE, record_ttl, rq_queue
from workers.stores.index_search import DEFAULT_SEARCH
from workers.stores.space import Space
from workers.stores.vectors import VectorStore

BATCHES = 32
"""Batches between two looks, which cost about a millisecond; each batch adds a fragment."""
FAILURE_TTL = 60
"""Seconds a failed run blocks the next request; the scheduled runs go on meanwhile."""

log = get_logger(__name__)


class Upkeep:
    """Counts a worker's batches and enqueues the job that the table asks for; one run of each at a time is queued."""

    def __init__(self, client: redis.Redis, settings: Settings, vectors: VectorStore, space: Space) -> None:
        self._record_ttl = record_ttl(settings)
        self._queue = rq_queue(MAINTENANCE, client, settings)
        self._vectors = vectors
        self._space = space
        self._batches = 0

    def follow(self, space: Space) -> None:
        """Look at the table of this space from now on: recall reads it."""
        self._space = space

    def after_batch(self) -> None:
        """Count one batch, and look at the table when it is time to."""
        self._batches += 1
        if self._batches % BATCHES:
            return
        try:
            name = self._wanted()
        except StoreUnavailable as error:
            log.warning("maintenance_not_requested", error=str(error))  # the batch itself is stored
            return
        if name is not None:
            self._request(name)

    def _wanted(self) -> str | None:
        """A fold joins fragments as well, so that one job is enough. What can wait is left to the schedule."""
        figures, indexes = self._vectors.statistics(self._space), self._vectors.indexes(self._space)
        work = index_work(figures, indexes, self._space.dimension, DEFAULT_SEARCH, now=datetime.now(UTC))
        if work.pressing:
            return "index"
        return "compact" if compact_reasons(figures, superseded_bytes=0) else None

    def _request(self, name: str) -> None:
        from rq.exceptions import DuplicateJobError

        try:
            self._queue.enqueue(
                "workers.jobs.run_maintenance",
                args=(name,),
                job_id=f"{name}-on-demand",
                unique=True,
                ttl=self._record_ttl,
                result_ttl=0,
                failure_ttl=FAILURE_TTL,
            )
        except DuplicateJobError:
            log.debug("maintenance_already_requested", job=name)
