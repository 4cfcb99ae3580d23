"""Asks for index maintenance as soon as ingest has made it worth doing, between the scheduled runs. Does I/O."""

from __future__ import annotations

from datetime import UTC, datetime

import redis

from producers.errors import StoreUnavailable
from producers.logs import get_logger
from producers.settings import Settings
from workers.maintenance.index import index_work
from workers.queues import MAINTENANCE, record_ttl, rq_queue
from workers.stores.space import Space
from workers.stores.vectors import VectorStore

BATCHES = 32
"""Batches between two looks, which cost about a millisecond; each batch adds a fragment."""
JOB_ID = "index-on-demand"
FAILURE_TTL = 60
"""Seconds a failed run blocks the next request; the scheduled runs go on meanwhile."""

log = get_logger(__name__)


class Upkeep:
    """Counts a worker's batches and enqueues the index job when the table asks for it; one at a time is queued."""

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
        from rq.exceptions import DuplicateJobError

        self._batches += 1
        if self._batches % BATCHES:
            return
        try:
            figures = self._vectors.statistics(self._space)
            if not index_work(figures, self._vectors.indexed_columns(self._space), now=datetime.now(UTC)):
                return
            self._queue.enqueue(
                "workers.jobs.run_maintenance",
                args=("index",),
                job_id=JOB_ID,
                unique=True,
                ttl=self._record_ttl,
                result_ttl=0,
                failure_ttl=FAILURE_TTL,
            )
        except DuplicateJobError:
            log.debug("index_already_requested")
        except StoreUnavailable as error:
            log.warning("index_not_requested", error=str(error))  # the batch itself is stored
