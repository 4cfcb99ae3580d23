"""RQ's cron scheduler with our serializer and with job ids that make a second enqueue impossible. Does I/O: Redis.

Import it only after `workers.queues.use_prefix`: RQ reads its key prefix when it is imported.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from datetime import UTC
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry
from rq import cron_scheduler_registry
from rq.cron import CronJob, CronScheduler
from rq.exceptions import DuplicateJobError, StopRequested

from producers.connection import said
from producers.keys import Keys
from producers.logs import get_logger
from producers.settings import Settings
from workers.queues import MAINTENANCE, rq_queue
from workers.schedule import MaintenanceJob, job_id, maintenance_jobs, time_to_live

RECONNECT_SECONDS = 1.0
RESULT_TTL = 600
"""Seconds a finished run's id is kept, and so how far behind another scheduler may be without running it again."""
FAILURE_TTL = 24 * 3600
"""Seconds a failed run is kept for a person to look at; the catalog keeps the history."""

log = get_logger(__name__)


class UniqueCronJob(CronJob):
    """A cron job that each due time enqueues once, however many schedulers run."""

    def __init__(self, job: MaintenanceJob, settings: Settings) -> None:
        super().__init__(
            Keys.queue(MAINTENANCE), func_name=job.function, args=(job.name,), cron=job.cron, name=job.name
        )
        self._job = job
        self._settings = settings

    def enqueue(self, connection: redis.Redis) -> Any:
        """The RQ job, or None when another scheduler was first."""
        due = self.next_enqueue_time or self.get_next_enqueue_time()
        run = job_id(self._job.name, due)
        try:
            return rq_queue(MAINTENANCE, connection, self._settings).enqueue(
                self._job.function,
                args=[self._job.name, due.astimezone(UTC).isoformat()],
                job_id=run,
                unique=True,
                ttl=int(time_to_live(self._job.cron, due).total_seconds()),
                result_ttl=RESULT_TTL,
                failure_ttl=FAILURE_TTL,
            )
        except DuplicateJobError:
            log.debug("already_enqueued", run=run)
            return None


class MaintenanceScheduler(CronScheduler):
    """RQ's loop over our jobs; stops cleanly also when Redis is away."""

    def __init__(self, connection: redis.Redis, jobs: Iterable[UniqueCronJob]) -> None:
        super().__init__(connection)
        self._cron_jobs = list(jobs)

    def register_death(self, pipeline: Any = None) -> None:
        """The registry entry of a scheduler expires by itself, so a Redis that is away is no reason to fail."""
        self.connection.set_retry(Retry(NoBackoff(), 0))  # who asks for the stop is waiting
        try:
            super().register_death(pipeline)
        except redis.RedisError as error:
            log.warning("not_unregistered", error=said(error))


def build_scheduler(
    jobs: Iterable[MaintenanceJob], settings: Settings, connection: redis.Redis
) -> MaintenanceScheduler:
    """A scheduler over `jobs`; `start()` runs it."""
    return MaintenanceScheduler(connection, [UniqueCronJob(job, settings) for job in jobs])


def run_scheduler(settings: Settings, connection: redis.Redis, on_ready: Callable[[], None] = lambda: None) -> None:
    """Enqueue each job when it is due, until SIGINT or SIGTERM; a Redis that is away is waited for.

    Runs missed meanwhile are skipped. Call it from the main thread.
    """
    jobs = maintenance_jobs(settings)
    on_ready()
    try:
        while True:
            try:
                cron_scheduler_registry.cleanup(connection)  # RQ forgets killed ones only when somebody lists them
                build_scheduler(jobs, settings, connection).start()  # type: ignore[no-untyped-call]  # rq's own
                return
            except redis.RedisError as error:  # away, or out of memory
                log.warning("redis_away", error=said(error))
            time.sleep(RECONNECT_SECONDS)
    except StopRequested:  # RQ's signal handler raises it, wherever it finds this thread
        return
