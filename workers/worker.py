"""The worker process: RQ's SimpleWorker, so that nothing forks once torch or lancedb is loaded. Does I/O.

An ingest worker keeps its encoder resident and takes live jobs before backfill jobs; a maintenance worker only takes
maintenance jobs, so that neither waits for the other.
"""

from __future__ import annotations

import os
import socket
import time
from threading import Event
from types import FrameType

from redis.backoff import NoBackoff
from redis.retry import Retry
from rq import Queue, SimpleWorker
from rq.job import Job
from rq.serializers import JSONSerializer

from producers.connection import mapped_errors
from producers.errors import StreamUnavailable
from producers.logs import get_logger
from producers.settings import LANES, Settings
from workers.malloc import share_arenas
from workers.queues import MAINTENANCE, connect, record_ttl, rq_queue
from workers.runtime import Runtime, build_ingest, install
from workers.supervision.tree_state import mark_ready
from workers.temporary import keep_in_data_dir

WORKER_TTL = 60
"""Seconds between two signs of life of an idle worker; a dead one of another host leaves `status` a minute later."""

LIVE_IN_A_ROW = 8
"""Live jobs after which one backfill job goes first: the share that old transcripts have while live turns never end."""

LONGEST_SHARE = 2.0
"""Seconds that it may take then, at most; else as long as one of the live jobs took. What it has computed is kept."""

log = get_logger(__name__)


class ResidentWorker(SimpleWorker):
    """Runs jobs in this very process and tells them when it is asked to stop."""

    def __init__(self, queues: list[Queue], resident: Runtime) -> None:
        super().__init__(
            queues,
            name=resident.consumer,
            connection=resident.client,
            serializer=JSONSerializer,
            log_job_description=False,
            worker_ttl=WORKER_TTL,
        )
        self._in_a_row = 0
        self._row_began = 0.0
        self._share = resident.share
        self._stopping = resident.stopping
        self._record_ttl = record_ttl(resident.settings)

    def reorder_queues(self, reference_queue: Queue) -> None:
        """Live jobs first; but after so many of them in a row a backfill job that waits has its turn.

        RQ calls it between the taking of a job from that queue and its execution.
        """
        now = time.monotonic()
        took = (now - self._row_began) / max(1, self._in_a_row)
        live = reference_queue.name == self.queues[0].name
        in_turn = not live and self._in_a_row >= LIVE_IN_A_ROW
        self._share.seconds = min(took, LONGEST_SHARE) if in_turn else 0.0
        self._row_began = now if self._in_a_row == 0 else self._row_began
        self._in_a_row = self._in_a_row + 1 if live else 0
        turned = self._in_a_row >= LIVE_IN_A_ROW
        self._ordered_queues = self.queues[::-1] if turned else self.queues[:]

    def prepare_job_execution(self, job: Job, remove_from_intermediate_queue: bool = False) -> None:
        """RQ makes the job's record permanent here; with a worker that is killed it would stay."""
        super().prepare_job_execution(job, remove_from_intermediate_queue)
        self.connection.expire(job.key, self._record_ttl)

    def request_stop(self, signum: int, frame: FrameType | None) -> None:
        """Finish what can be finished soon; a job that waits for a service stops waiting."""
        self._stopping.set()
        self.connection.set_retry(Retry(NoBackoff(), 0))  # who asks for the stop does not wait for Redis to come back
        super().request_stop(signum, frame)  # type: ignore[no-untyped-call]  # rq leaves it untyped

    def set_shutdown_requested_date(self) -> None:
        """Nobody reads it, and RQ would write it to Redis in the middle of a signal handler."""


def run_worker(settings: Settings, name: str, *, maintenance: bool = False) -> None:
    """Work until SIGTERM or SIGINT, or until `worker_max_jobs` jobs are done and a fresh process is due."""
    share_arenas()
    keep_in_data_dir(settings)
    client = connect(settings)
    unique_name = f"{name}-{socket.gethostname()}-{os.getpid()}"
    pipeline, upkeep = (None, None) if maintenance else build_ingest(settings, client)
    resident = Runtime(settings, client, unique_name, Event(), pipeline, upkeep)
    install(resident)
    lanes = [MAINTENANCE] if maintenance else list(LANES)
    worker = ResidentWorker([rq_queue(lane, client, settings) for lane in lanes], resident)
    mark_ready(settings.data_dir, name)
    log.info("worker_started", name=unique_name, queues=lanes)
    try:
        with mapped_errors(settings):  # RQ outlives a Redis that is away, not one that is out of memory
            worker.work(logging_level="WARNING", max_jobs=settings.worker_max_jobs)
    except StreamUnavailable:
        if not resident.stopping.is_set():  # or it could not say goodbye, and its record expires by itself
            raise
    log.info("worker_stopped", name=unique_name)
