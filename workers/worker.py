"""The worker process: RQ's SimpleWorker, so that nothing forks once torch or lancedb is loaded. Does I/O.

An ingest worker keeps its encoder resident and takes live jobs before backfill jobs; a maintenance worker only takes
maintenance jobs, so that neither waits for the other.
"""

from __future__ import annotations

import os
import socket
from threading import Event
from types import FrameType

import redis
from rq import Queue, SimpleWorker
from rq.serializers import JSONSerializer

from producers.connection import connect as connect_redis
from producers.logs import get_logger
from producers.settings import LANES, Settings
from workers.queues import MAINTENANCE, connect, rq_queue
from workers.runtime import Runtime, build_ingest, install
from workers.tree_state import mark_ready

log = get_logger(__name__)


class ResidentWorker(SimpleWorker):
    """Runs jobs in this very process and tells them when it is asked to stop."""

    def __init__(self, queues: list[Queue], name: str, connection: redis.Redis, stopping: Event) -> None:
        super().__init__(queues, name=name, connection=connection, serializer=JSONSerializer, log_job_description=False)
        self._stopping = stopping

    def request_stop(self, signum: int, frame: FrameType | None) -> None:
        """Finish what can be finished soon; a job that waits for a service stops waiting."""
        self._stopping.set()
        super().request_stop(signum, frame)  # type: ignore[no-untyped-call]  # rq leaves it untyped


def run_worker(settings: Settings, name: str, *, maintenance: bool = False) -> None:
    """Work until SIGTERM or SIGINT, or until `worker_max_jobs` jobs are done and a fresh process is due."""
    client = connect(settings)
    stopping = Event()
    unique_name = f"{name}-{socket.gethostname()}-{os.getpid()}"
    pipeline, upkeep = (None, None) if maintenance else build_ingest(settings, client)
    install(Runtime(settings, client, unique_name, stopping, pipeline, upkeep))
    lanes = [MAINTENANCE] if maintenance else list(LANES)
    worker = ResidentWorker([rq_queue(lane, client, settings) for lane in lanes], unique_name, client, stopping)
    mark_ready(settings.data_dir, name)
    log.info("worker_started", name=unique_name, queues=lanes)
    worker.work(logging_level="WARNING", max_jobs=settings.worker_max_jobs)
    log.info("worker_stopped", name=unique_name)


def run_intake(settings: Settings, name: str, stopping: Event) -> None:
    """Run the intake of both lanes, a thread each, until `stopping` is set. Raises what a lane raised."""
    from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait

    from workers.intake import Intake

    consumer = f"{name}-{socket.gethostname()}-{os.getpid()}"
    with ThreadPoolExecutor(max_workers=len(LANES), thread_name_prefix="intake") as pool:
        # Its loop waits for a Redis that is away, so a single call need not: a stop is noticed at once.
        lanes = [pool.submit(Intake(connect_redis(settings), settings, lane, consumer, stopping).run) for lane in LANES]
        mark_ready(settings.data_dir, name)
        done, _ = wait(lanes, return_when=FIRST_EXCEPTION)
        stopping.set()
        for lane in done:
            lane.result()
