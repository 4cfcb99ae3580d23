"""RQ as this project uses it: our key prefix, JSON serializer and queue names.

RQ reads `RQ_KEY_PREFIX` from the environment when it is imported, so `use_prefix` comes before the first import of rq,
which is why this module imports it late.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING
from uuid import uuid4

import redis

from producers.connection import connect as connect_redis
from producers.errors import SettingsError
from producers.keys import Keys
from producers.settings import Lane, Settings

if TYPE_CHECKING:
    from rq import Queue

MAINTENANCE = "maintenance"
INGEST = "workers.jobs.ingest"
"""The ingest job's dotted name: wire format."""
FAILURE_TTL = 3600
"""Seconds RQ keeps a failed ingest job's record; the ledger, not RQ, decides what happens to its entries."""
PATIENCE = 60.0
"""Seconds that a worker waits within one call for a Redis that is away: RQ gives up its process for less."""


def connect(settings: Settings) -> redis.Redis:
    """A worker's client, which outlives a restart of Redis."""
    return connect_redis(settings, patience=PATIENCE)


def use_prefix(settings: Settings) -> None:
    """Put RQ's keys under ours. Raises `SettingsError` when rq was imported earlier under another prefix."""
    wanted = Keys(settings.key_prefix).rq_prefix
    os.environ["RQ_KEY_PREFIX"] = wanted
    from rq.defaults import RQ_KEY_PREFIX

    if wanted != RQ_KEY_PREFIX:
        raise SettingsError(f"rq was imported under the prefix {RQ_KEY_PREFIX!r} before {wanted!r} was asked for")


def record_ttl(settings: Settings) -> int:
    """Seconds that a job's record lives unless someone renews it: longer than the job, and not for ever.

    RQ keeps it until the job has ended, and a job whose worker is killed never ends.
    """
    return settings.job_timeout + FAILURE_TTL


def enqueue_batch(
    queue: Queue, settings: Settings, lane: Lane, entry_ids: Sequence[str], delivery: int, *, again: bool = False
) -> bool:
    """Queue the ingest of these entries; False when the same entries wait already on the same delivery.

    `again`: for a batch that has made way, whose own job has not ended yet; it goes to the front.
    """
    from rq.exceptions import DuplicateJobError

    job_id = batch_job_id(lane, entry_ids, delivery)
    try:
        queue.enqueue(
            INGEST,
            args=(lane, list(entry_ids), delivery),
            job_id=f"{job_id}-{uuid4().hex[:8]}" if again else job_id,
            unique=True,
            at_front=again,
            ttl=record_ttl(settings),
            result_ttl=0,
            failure_ttl=FAILURE_TTL,
            description=f"{lane}: {len(entry_ids)} entries",
        )
    except DuplicateJobError:
        return False
    return True


def batch_job_id(lane: Lane, entry_ids: Sequence[str], delivery: int) -> str:
    """The same entries on the same delivery are the same job, whoever enqueues it. Pure."""
    digest = hashlib.sha256(" ".join(entry_ids).encode()).hexdigest()[:24]
    return f"ingest-{lane}-{delivery}-{digest}"


def rq_queue(lane: str, connection: redis.Redis, settings: Settings) -> Queue:
    """The queue of a lane or of `MAINTENANCE`."""
    use_prefix(settings)
    from rq import Queue
    from rq.serializers import JSONSerializer

    return Queue(
        Keys.queue(lane), connection=connection, serializer=JSONSerializer, default_timeout=settings.job_timeout
    )
