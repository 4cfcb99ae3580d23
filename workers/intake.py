"""Intake: moves entries from a stream into ingest jobs, in micro-batches, and takes over abandoned ones. Does I/O.

A job carries entry ids only. What RQ holds is bounded, so a backlog waits in the stream.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from threading import Event

import redis

from producers.connection import TRANSIENT, connect, said
from producers.crash_points import Point, reached
from producers.errors import RetryableError
from producers.logs import get_logger
from producers.settings import LANES, Lane, Settings
from producers.stream import SEND_SECONDS, EventStream
from workers.ledger import Entry, Ledger
from workers.queues import INGEST, enqueue_batch, record_ttl, rq_queue
from workers.supervision.tree_state import mark_ready

READ_PAGE = 64
"""Entries read in one call; at the content limit of 1 MiB that is 64 MiB."""
IDLE_BLOCK = 0.5
"""Seconds one read waits for the first entry; also how soon a stop is noticed."""
QUEUE_POLL = 0.01
"""Seconds between two looks at a queue that is full."""
FULL_BATCH_PATIENCE = 1.0
"""Seconds a short batch waits while other jobs wait anyway: a fuller batch costs no time then."""
HOUSEKEEPING_PER_LEASE = 3
"""Leases are renewed and abandoned entries looked for this often within one lease."""

log = get_logger(__name__)


class Intake:
    """The loop of one lane. `run` returns when `stop` is set, with what was read enqueued."""

    def __init__(self, client: redis.Redis, settings: Settings, lane: Lane, consumer: str, stop: Event) -> None:
        self._ledger = Ledger(client, settings, lane, consumer)
        self._queue = rq_queue(lane, client, settings)
        self._spool = EventStream(settings, lane, client=client)
        self._settings = settings
        self._stop = stop
        self._next_housekeeping = 0.0

    def run(self) -> None:
        """Read, batch, enqueue; outlives a Redis that restarts."""
        log.info("intake_started", lane=self._ledger.lane)
        while not self._stop.is_set():
            try:
                # Repeated on each round: a Redis that lost its data has lost the group as well.
                self._ledger.ensure_group()
                while not self._stop.is_set():
                    self.step()
            except TRANSIENT as error:
                log.warning("redis_away", lane=self._ledger.lane, error=said(error))
                self._stop.wait(1.0)
            except redis.exceptions.RedisError as error:
                # A lost group is made again; a full disk or a key of another kind is waited for, alone.
                log.error("redis_refuses", lane=self._ledger.lane, error=said(error))
                self._stop.wait(1.0)
        log.info("intake_stopped", lane=self._ledger.lane)

    def step(self) -> None:
        """One round: housekeeping when due, then at most one batch."""
        if time.monotonic() >= self._next_housekeeping:
            self._next_housekeeping = time.monotonic() + self._settings.lease / HOUSEKEEPING_PER_LEASE
            self._keep_queued_leases()
            self._requeue_abandoned()
            self._ledger.remove_idle_consumers()
            self._send_spooled()
        if self._queue.count >= self._settings.max_inflight:
            self._stop.wait(QUEUE_POLL)
            return
        batches = cut_batches(self._gather(), self._settings.batch_turns, self._settings.batch_bytes)
        self._enqueue_all([(batch, 1) for batch in batches])

    def _send_spooled(self) -> None:
        """Send what a producer left on this machine: a command that ran while Redis was away has nobody else."""
        try:
            self._spool.send_spooled(SEND_SECONDS)
        except RetryableError as error:
            log.warning("spool_waits", lane=self._ledger.lane, reason=str(error))

    def _gather(self) -> list[Entry]:
        """Read until the batch is full or has waited long enough."""
        gathered = self._ledger.read(min(READ_PAGE, self._settings.batch_turns), IDLE_BLOCK)
        if not gathered:
            return []
        reached(Point.AFTER_READ)
        started = time.monotonic()
        size = sum(len(entry.payload) for entry in gathered)
        while len(gathered) < self._settings.batch_turns and size < self._settings.batch_bytes:
            more = self._ledger.read(min(READ_PAGE, self._settings.batch_turns - len(gathered)), block=0)
            gathered += more
            size += sum(len(entry.payload) for entry in more)
            if not more:
                waited = time.monotonic() - started
                if self._stop.is_set() or waited >= self._patience():
                    break
                self._stop.wait(min(QUEUE_POLL, self._settings.batch_wait))
        return gathered

    def _patience(self) -> float:
        """Seconds a short batch may wait: longer while workers have other jobs to do first."""
        return max(self._settings.batch_wait, FULL_BATCH_PATIENCE) if self._queue.count else self._settings.batch_wait

    def _enqueue_all(self, batches: Sequence[tuple[Sequence[Entry], int]]) -> None:
        """Enqueue (entries, delivery) in order. What Redis has no memory for was not delivered to anybody."""
        for done, (entries, delivery) in enumerate(batches):
            try:
                self._enqueue([entry.id for entry in entries], delivery=delivery)
            except redis.exceptions.ResponseError:
                self._ledger.release([entry.id for left, _ in batches[done:] for entry in left])
                raise

    def _enqueue(self, entry_ids: Sequence[str], *, delivery: int) -> None:
        if enqueue_batch(self._queue, self._settings, self._ledger.lane, entry_ids, delivery):
            reached(Point.AFTER_ENQUEUE)
        else:
            log.info("batch_already_queued", lane=self._ledger.lane, entries=len(entry_ids), delivery=delivery)

    def _keep_queued_leases(self) -> None:
        """Renew the lease of what waits in RQ, and the job's record: it is not abandoned, its turn has not come."""
        for job in self._queue.get_jobs():
            if job.func_name == INGEST:  # another's job fails in a worker; it must not end the intake
                self._ledger.renew(job.args[1])
                self._queue.connection.expire(job.key, record_ttl(self._settings))

    def _requeue_abandoned(self) -> None:
        """Enqueue what a dead process left behind; bury what has been delivered too often."""
        claimed = self._ledger.claim_abandoned(self._settings.batch_turns)
        if claimed.lost:
            log.warning("pending_entries_without_data", lane=self._ledger.lane, count=claimed.lost)
        waiting: dict[int, list[Entry]] = {}
        for entry, deliveries in claimed.entries:
            if deliveries > self._settings.max_deliveries:
                self._bury(entry, deliveries - 1)
            else:
                waiting.setdefault(deliveries, []).append(entry)
        batches: list[tuple[Sequence[Entry], int]] = []
        for deliveries, entries in sorted(waiting.items()):
            log.info("redelivering", lane=self._ledger.lane, entries=len(entries), delivery=deliveries)
            limit = redelivery_size(self._settings.batch_turns, deliveries, self._settings.max_deliveries)
            batches += [(batch, deliveries) for batch in cut_batches(entries, limit, self._settings.batch_bytes)]
        self._enqueue_all(batches)

    def _bury(self, entry: Entry, deliveries: int) -> None:
        reason = self._ledger.failure_of(entry.id) or (
            f"delivered {deliveries} times without being stored: each time the worker died or was stopped"
        )
        self._ledger.bury(entry, reason, deliveries)
        log.error("dead_letter", lane=self._ledger.lane, entry=entry.id, reason=reason)


def run_intake(settings: Settings, name: str, stopping: Event) -> None:
    """Run the intake of both lanes, a thread each, until `stopping` is set. Raises what a lane raised."""
    consumer = f"{name}-{socket.gethostname()}-{os.getpid()}"
    with ThreadPoolExecutor(max_workers=len(LANES), thread_name_prefix="intake") as pool:
        # Its loop waits for a Redis that is away, so a single call need not: a stop is noticed at once.
        lanes = [pool.submit(Intake(connect(settings), settings, lane, consumer, stopping).run) for lane in LANES]
        mark_ready(settings.data_dir, name)
        # Looked at now and then: a signal that another thread takes does not wake one that waits without an end.
        while not (done := wait(lanes, IDLE_BLOCK, FIRST_COMPLETED).done):
            pass
        stopping.set()
        for lane in done:
            lane.result()


def cut_batches(entries: Sequence[Entry], max_entries: int, max_bytes: int) -> list[list[Entry]]:
    """Entries in order, in batches within both limits; an entry above max_bytes is a batch of its own. Pure."""
    batches: list[list[Entry]] = []
    size = 0
    for entry in entries:
        if not batches or len(batches[-1]) >= max_entries or size + len(entry.payload) > max_bytes:
            batches.append([])
            size = 0
        batches[-1].append(entry)
        size += len(entry.payload)
    return batches


def redelivery_size(batch_turns: int, delivery: int, max_deliveries: int) -> int:
    """Entries a redelivered batch may hold: fewer each time and one at last, so that poison ends up alone. Pure."""
    steps = max(1, max_deliveries - 1)
    return max(1, int(batch_turns ** (1 - min(delivery - 1, steps) / steps)))
