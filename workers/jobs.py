"""The jobs that RQ runs. Their dotted names and arguments are wire format; they take ids only. Does I/O.

A job never raises for what a turn holds: RQ would keep the traceback. It settles what is stored, buries what is poison,
waits while a service is away, and leaves the rest to be delivered again.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime

import redis
from rq.timeouts import BaseTimeoutException

from producers.connection import TRANSIENT, said
from producers.crash_points import Point, reached
from producers.errors import (
    Busy,
    EmbedderUnavailable,
    InvalidEvent,
    ModelError,
    NotReady,
    PoisonError,
    RetryableError,
    ScopeRecallError,
    StreamUnavailable,
)
from producers.events import parse_event
from producers.logs import get_logger, where
from producers.settings import Lane, Settings
from workers.embedding.batch import PART_SECONDS
from workers.ingest import Arrival, NotStored, Pipeline
from workers.lease import Lease
from workers.ledger import Entry, Ledger
from workers.queues import enqueue_batch, rq_queue
from workers.runtime import GiveBack, Runtime, StepAside, runtime

FIRST_WAIT = 0.5
LONGEST_WAIT = 30.0
"""Seconds between two attempts while a store or the embedder is away; doubled each time."""
LONGEST_RETRY_AFTER = 300.0
"""Seconds that a service may ask to wait; one that asks for more is asked again sooner."""
WAITING_SHARE = 0.5
"""Of `job_timeout`, what one job may spend on waiting; the rest is for the work itself."""

RUN_PATIENCE = 45.0
"""Seconds a scheduled run waits for another one of its job; longer than the lease of one that was killed."""
YIELD_SECONDS = 0.05
"""How long a live turn waits at most for a backfill batch that is being embedded. Shorter calls of the model cost more
of its time in starting them."""

log = get_logger(__name__)


def ingest(lane: Lane, entry_ids: list[str], delivery: int) -> None:
    """Store the events behind these stream entries, then acknowledge and delete them."""
    resident = runtime()
    if resident.pipeline is None or resident.upkeep is None:
        raise RuntimeError("this worker has no encoder: it only takes maintenance jobs")
    ledger = Ledger(resident.client, resident.settings, lane, resident.consumer)
    with Lease(ledger, entry_ids, resident.settings.lease):
        entries = ledger.fetch(entry_ids)
        try:
            polite = Politeness(resident, lane)
            BatchJob(ledger, resident.pipeline, resident.settings, resident.wait, delivery, polite).run(entries)
        except redis.exceptions.RedisError as error:
            # RQ keeps and logs what a job raises, and redis-py quotes the command, which may be a turn.
            raise StreamUnavailable(f"Redis refuses: {said(error)}") from None
        except StepAside:
            _queue_again(ledger, polite, resident.settings, entry_ids, delivery)
            return
        except GiveBack as why:
            ledger.release(entry_ids)
            log.info("batch_given_back", lane=lane, entries=len(entry_ids), reason=str(why))
            return
    resident.upkeep.follow(resident.pipeline.active.space)
    resident.upkeep.after_batch()


def _queue_again(ledger: Ledger, polite: Politeness, settings: Settings, entry_ids: list[str], delivery: int) -> None:
    """A Redis that takes no job now, being full or away, gets the batch back as it was."""
    try:
        enqueue_batch(polite.queue, settings, ledger.lane, entry_ids, delivery, again=True)
    except redis.exceptions.RedisError as error:
        log.warning("batch_not_queued_again", lane=ledger.lane, error=said(error))
        with suppress(redis.exceptions.RedisError):  # or its lease runs out, and it is delivered again
            ledger.release(entry_ids)


def run_maintenance(name: str, due: str | None = None) -> None:
    """Run one maintenance job by name. `due`: ISO 8601, of a scheduled run; None when a worker asked for it.

    A scheduled run waits for one that goes on, one that was asked for does not.
    """
    from workers.maintenance.run import run_job

    resident = runtime()
    moment = datetime.fromisoformat(due) if due else None
    try:
        if moment is None:
            run_job(name, resident.settings, resident.client, trigger="on demand")
        else:
            run_job(name, resident.settings, resident.client, trigger="scheduled", due=moment, patience=RUN_PATIENCE)
    except Busy as error:
        log.info("maintenance_skipped", job=name, reason=str(error))
    except ScopeRecallError as error:  # RQ would keep a traceback; the history has it, and the next run comes by itself
        log.warning("maintenance_failed", job=name, reason=str(error))


class Politeness:
    """A backfill batch makes way for live turns, once its share is used up; a live one for nobody."""

    def __init__(self, resident: Runtime, lane: Lane) -> None:
        self.queue = rq_queue(lane, resident.client, resident.settings)
        self._live = rq_queue("live", resident.client, resident.settings)
        self._yields = lane == "backfill"
        self.pace = YIELD_SECONDS if self._yields else PART_SECONDS
        """Seconds between two looks."""
        self._next_look = time.monotonic() + resident.share.seconds

    def look(self) -> None:
        """Raises `StepAside` when a live job waits; called for each turn, and asks Redis no more often than `pace`."""
        now = time.monotonic()
        if self._yields and now >= self._next_look:
            self._next_look = now + self.pace
            if self._live.count:
                raise StepAside


class BatchJob:
    """One delivery of one batch."""

    def __init__(
        self,
        ledger: Ledger,
        pipeline: Pipeline,
        settings: Settings,
        wait: Callable[[float], None],
        delivery: int,
        polite: Politeness,
    ) -> None:
        self._ledger = ledger
        self._pipeline = pipeline
        self._settings = settings
        self._wait = wait
        self._delivery = delivery
        self._polite = polite

    def run(self, entries: Sequence[Entry]) -> None:
        """Store all that can be stored; poison is found by halving, so that its batch-mates are stored."""
        arrivals = self._decode(entries)
        if arrivals:
            self._store([entry for entry, _ in arrivals], [arrival for _, arrival in arrivals])

    def _decode(self, entries: Sequence[Entry]) -> list[tuple[Entry, Arrival]]:
        arrivals = []
        for entry in entries:
            try:
                event = parse_event(entry.payload, self._settings)
            except InvalidEvent as error:
                # The producer checks as well; this is an entry from another program, version or limit.
                self._bury(entry, f"not a valid turn event: {error.without_values}")
            else:
                arrivals.append((entry, Arrival(event, entry.order, entry.accepted)))
        return arrivals

    def _store(self, entries: Sequence[Entry], arrivals: Sequence[Arrival]) -> None:
        try:
            outcomes = self._patiently(lambda: self._pipeline.store(arrivals, self._pause, self._polite.pace))
        except (GiveBack, StepAside, BaseTimeoutException, *TRANSIENT):
            raise
        except NotStored as failed:
            self._store_without(failed, entries, arrivals)
            return
        except Exception as error:  # noqa: BLE001  # any failure must be pinned to the entry that causes it
            if len(entries) > 1:
                middle = len(entries) // 2
                self._store(entries[:middle], arrivals[:middle])
                self._store(entries[middle:], arrivals[middle:])
            else:
                self._fail(entries[0], error)
            return
        self._ledger.settle([entry.id for entry in entries])
        reached(Point.AFTER_ACK)
        redelivered = {"redelivered": len(entries)} if self._delivery > 1 else {}
        self._ledger.count(Counter({**outcomes, **redelivered}))

    def _store_without(self, failed: NotStored, entries: Sequence[Entry], arrivals: Sequence[Arrival]) -> None:
        """Store the batch-mates of events that cannot be embedded; what is embedded already is not embedded again."""
        rest = []
        for entry, arrival in zip(entries, arrivals, strict=True):
            error = failed.errors.get(entry.order)
            if error is None:
                rest.append((entry, arrival))
            else:
                self._fail(entry, error)
        if rest:
            self._store([entry for entry, _ in rest], [arrival for _, arrival in rest])

    def _patiently(self, attempt: Callable[[], Counter[str]]) -> Counter[str]:
        """Try until it works, while what stands in the way may pass: waiting loses nothing, giving up would.

        Raises `GiveBack` before the job's own time-out would end the waiting as a failed delivery.
        """
        wait = FIRST_WAIT
        waited = False
        give_back_at = time.monotonic() + self._settings.job_timeout * WAITING_SHARE
        while True:
            try:
                outcomes = attempt()
                if waited:
                    self._ledger.report_working()
                return outcomes
            except (RetryableError, ModelError, NotReady) as error:
                seconds = min(getattr(error, "retry_after", None) or wait, LONGEST_RETRY_AFTER)
                self._ledger.report_waiting(str(error), seconds)
                if time.monotonic() + seconds > give_back_at:
                    raise GiveBack(f"waited long enough: {error}") from None
                log.warning("waiting", reason=str(error), seconds=seconds)
                self._wait(seconds)
                waited = True
                wait = min(wait * 2, LONGEST_WAIT)

    def _pause(self) -> None:
        self._wait(0)
        self._polite.look()

    def _fail(self, entry: Entry, error: Exception) -> None:
        told = isinstance(error, (PoisonError, EmbedderUnavailable))  # ours; any other may quote what the turn says
        reason = f"{type(error).__name__}: {error}" if told else type(error).__name__
        if isinstance(error, PoisonError):
            self._bury(entry, reason)
            return
        # Not known to be the entry's fault: it stays pending and is delivered again, alone, up to the limit.
        log.error("entry_failed", lane=self._ledger.lane, entry=entry.id, error_type=reason, at=where(error))
        at = "" if told else " in the worker (see its log)"
        self._ledger.record_failure(entry.id, f"{reason}{at} on delivery {self._delivery}")

    def _bury(self, entry: Entry, reason: str) -> None:
        self._ledger.bury(entry, reason, self._delivery)
        log.error("dead_letter", lane=self._ledger.lane, entry=entry.id, reason=reason)
