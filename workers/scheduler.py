"""RQ's cron scheduler with our serializer and with job ids that make a second enqueue impossible. Does I/O: Redis.

Import it only after `workers.queues.use_prefix`: RQ reads its key prefix when it is imported.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from datetime import UTC, datetime
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry
from rq import cron_scheduler_registry
from rq.cron import CronJob, CronScheduler
from rq.exceptions import DuplicateJobError, StopRequested

from producers.connection import said
from producers.errors import NotReady, StoreUnavailable
from producers.keys import Keys
from producers.logs import get_logger
from producers.settings import Settings
from workers.queues import MAINTENANCE, rq_queue
from workers.schedule import MaintenanceJob, job_id, last_due, maintenance_jobs, overdue, time_to_live
from workers.stores.catalog import Catalog

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
        return self.enqueue_for(self.next_enqueue_time or self.get_next_enqueue_time(), connection)

    def enqueue_for(self, due: datetime, connection: redis.Redis) -> Any:
        """The same for the run that is due at `due`."""
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
        self._jobs = list(jobs)
        self._cron_jobs = list(self._jobs)

    def enqueue_missed(self, missed: Mapping[str, datetime]) -> None:
        """Enqueue one run of each job named, due when the last one was that did not happen."""
        for job in self._jobs:
            if job.name in missed:
                job.enqueue_for(missed[job.name], self.connection)

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


def missed_runs(jobs: Iterable[MaintenanceJob], settings: Settings, now: datetime) -> dict[str, datetime]:
    """By job, the last due time of those that have run before and have missed two and more since."""
    try:
        catalog = Catalog.open(settings.catalog_location)
    except (NotReady, StoreUnavailable):  # nothing is stored yet, or whoever stores will say what is wrong
        return {}
    with closing(catalog):
        last = {job: catalog.runs.last(job.name, went_well=True) for job in jobs}
    return {
        job.name: last_due(job.cron, now)
        for job, run in last.items()
        if run is not None and run.ended is not None and overdue(job.cron, run.ended, now)
    }


def run_scheduler(settings: Settings, connection: redis.Redis, on_ready: Callable[[], None] = lambda: None) -> None:
    """Enqueue each job when it is due, until SIGINT or SIGTERM; a Redis that is away is waited for.

    Runs missed meanwhile are skipped. At its start each job that missed two and more is run once, or the nightly ones
    of a machine that is on by day would never be. Call it from the main thread.
    """
    jobs = maintenance_jobs(settings)
    missed = missed_runs(jobs, settings, datetime.now(UTC))
    on_ready()
    try:
        while True:
            try:
                cron_scheduler_registry.cleanup(connection)  # RQ forgets killed ones only when somebody lists them
                scheduler = build_scheduler(jobs, settings, connection)
                scheduler.enqueue_missed(missed)
                missed = {}
                scheduler.start()  # type: ignore[no-untyped-call]  # rq's own
                return
            except redis.RedisError as error:  # away, or out of memory
                log.warning("redis_away", error=said(error))
            time.sleep(RECONNECT_SECONDS)
    except StopRequested:  # RQ's signal handler raises it, wherever it finds this thread
        return
