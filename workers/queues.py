"""RQ as this project uses it: our key prefix, JSON serializer and queue names.

RQ reads `RQ_KEY_PREFIX` from the environment when it is imported, so `use_prefix` comes before the first import of rq,
which is why this module imports it late.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import redis

from producers.connection import connect as connect_redis
from producers.errors import SettingsError
from producers.keys import Keys
from producers.settings import Settings

if TYPE_CHECKING:
    from rq import Queue

MAINTENANCE = "maintenance"
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


def rq_queue(lane: str, connection: redis.Redis, settings: Settings) -> Queue:
    """The queue of a lane or of `MAINTENANCE`."""
    use_prefix(settings)
    from rq import Queue
    from rq.serializers import JSONSerializer

    return Queue(
        Keys.queue(lane), connection=connection, serializer=JSONSerializer, default_timeout=settings.job_timeout
    )
