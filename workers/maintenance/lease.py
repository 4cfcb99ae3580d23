"""One run of a maintenance job at a time, whoever starts it: a lease in Redis that ends with its holder. Does I/O.

The holder renews it from a thread. When the holder dies, or cannot reach Redis for as long as the lease lasts, the
next one may begin; a holder that goes on for long asks `held` before each step that another run must not repeat.
"""

from __future__ import annotations

import os
import socket
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread
from typing import Any

import redis

from producers.connection import mapped_errors, said
from producers.errors import Busy
from producers.keys import Keys
from producers.logs import get_logger
from producers.settings import Settings

LEASE_SECONDS = 30.0
"""How long a dead holder keeps others out; longer than a restart of Redis takes."""
RENEWALS = 3
"""Renewals within one lease, so that one that comes late does no harm."""
_RENEW = """
local holder = redis.call('get', KEYS[1])
if holder and holder ~= ARGV[1] then return 0 end
redis.call('set', KEYS[1], ARGV[1], 'px', ARGV[2])
return 1
"""
"""A key that is gone is taken again: a Redis that lost its data has lost the lease of a holder that lives."""
_RELEASE = "if redis.call('get', KEYS[1]) == ARGV[1] then redis.call('del', KEYS[1]) end"

log = get_logger(__name__)


class JobLease:
    """The lease of a job that is running. Made by `exclusive`."""

    def __init__(self, client: redis.Redis, key: str, token: str) -> None:
        self._client: Any = client
        self._key = key
        self._token = token
        self._ends = time.monotonic() + LEASE_SECONDS
        self._overtaken = False
        self._done = Event()
        self._thread = Thread(target=self._keep, name="job-lease", daemon=True)

    @property
    def held(self) -> bool:
        """Whether nobody else can have begun this job meanwhile."""
        return not self._overtaken and time.monotonic() < self._ends

    def start(self) -> None:
        """Keep the lease until `end`."""
        self._thread.start()

    def end(self) -> None:
        """Let the next one begin at once."""
        self._done.set()
        self._thread.join()
        try:
            self._client.eval(_RELEASE, 1, self._key, self._token)
        except redis.exceptions.RedisError as error:
            log.warning("job_lease_not_released", error=said(error))  # it expires

    def _keep(self) -> None:
        while not self._overtaken and not self._done.wait(LEASE_SECONDS / RENEWALS):
            asked = time.monotonic()
            if asked >= self._ends:  # another run may have come and gone
                self._overtaken = True
                return
            try:
                renewed = self._client.eval(_RENEW, 1, self._key, self._token, int(LEASE_SECONDS * 1000))
            except redis.exceptions.RedisError as error:
                log.warning("job_lease_not_renewed", error=said(error))
                continue
            self._overtaken = not renewed
            self._ends = asked + LEASE_SECONDS


@contextmanager
def exclusive(client: redis.Redis, settings: Settings, job: str) -> Iterator[JobLease]:
    """Run the body while nobody else, on any machine of this Redis, runs `job`.

    Raises `Busy` naming the holder when somebody does, `StreamUnavailable` when Redis cannot be asked.
    """
    key = Keys(settings.key_prefix).running(job)
    token = f"pid {os.getpid()} on {socket.gethostname()} ({uuid.uuid4().hex[:8]})"
    lease = JobLease(client, key, token)
    with mapped_errors(settings):
        taken = client.set(key, token, nx=True, px=int(LEASE_SECONDS * 1000))
        holder: Any = None if taken else client.get(key)
    if not taken:
        name = holder.decode().rpartition(" (")[0] if holder else "another process"
        raise Busy(
            f"job {job} is already run by {name}: nothing was done; try again when it has ended (a run that was "
            f"killed is forgotten after {LEASE_SECONDS:.0f} s)"
        )
    lease.start()
    try:
        yield lease
    finally:
        lease.end()
