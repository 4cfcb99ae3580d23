"""Appending turn events to a Redis stream. Does I/O.

An append returns once Redis has taken the events or, while Redis is away, once they are in the spool on disk. At high
water it waits, then raises `StreamFull`; nothing is dropped. Delivery is at least once: a call that is tried again
after a broken connection may add an event twice, and the event's identity makes the second one a duplicate.

Order: what one process appends reaches the stream in that order, and what is spooled in a data dir goes before anything
that is appended there later. Between data dirs, and between processes that append at the same time, the order of
arrival at Redis decides which of two revisions is the newer one, so a spooled event counts from when it is sent.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import redis

from producers.connection import TRANSIENT, connect, mapped_errors
from producers.crash_points import Point, reached
from producers.errors import RetryableError, StreamAway, StreamFull
from producers.events import TurnEvent
from producers.high_water import STEP_BYTES, STEP_EVENTS, HighWater
from producers.keys import ACCEPTED_FIELD, EVENT_FIELD, GROUP, Keys
from producers.settings import Lane, Settings
from producers.spool import Spool, Spooled
from producers.spool_file import locked

POLL = 0.05
"""Seconds between two looks at a stream that is at high water."""
RECONNECT_SECONDS = 0.5
"""How long an append tries to reach a Redis that has just answered before it spools."""
SEND_SECONDS = 1.0
"""What an append gives to sending what is spooled; when that is not enough it goes behind it, into the spool."""
FIRST_RETRY = 1.0
LONGEST_RETRY = 30.0
"""Seconds until a Redis that is away is tried again: ten times what the attempt took, within these bounds, so that an
address that does not even refuse costs an agent little of its time."""
MARK_SECONDS = 7 * 24 * 3600
"""How long Redis remembers how far a spool file was sent; it matters to one that survives a crash of its sender."""


@dataclass(frozen=True)
class Backlog:
    """What waits in one lane: `lag` not yet read, `pending` read and not yet stored, `length` entries in all."""

    length: int
    pending: int

    @property
    def lag(self) -> int:
        return max(0, self.length - self.pending)


class EventStream:
    """One lane's stream, as a producer sees it. Use as a context manager, or call `close`."""

    def __init__(self, settings: Settings, lane: Lane = "live", *, client: redis.Redis | None = None) -> None:
        self._settings = settings
        self._client = client or connect(settings)
        self._keys = Keys(settings.key_prefix)
        self._stream = self._keys.stream(lane)
        self._lane = lane
        self._has_answered = False
        self._high_water = HighWater(self._client, self._stream, lane, settings)
        self._spool = Spool(settings, lane)
        self._away = ""
        self._retry_at = 0.0
        self._closing = threading.Event()
        self._sender: threading.Thread | None = None

    def __enter__(self) -> EventStream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Send what can be sent of the spool at once, and let go; what is left is sent by whoever comes next."""
        self._closing.set()
        if self._sender is not None:
            self._sender.join(SEND_SECONDS)
        if self._settings.spool:
            self._send_if_possible(early=FIRST_RETRY)
        self._client.close()

    def append(self, events: Iterable[TurnEvent]) -> int:
        """Append `events` in order, however many; returns how many were accepted (all of them).

        While Redis is away they are accepted into the spool (`spooled` says how many wait there). Raises `StreamFull`
        after `append_timeout` seconds without progress, `SpoolFull`, or `StreamUnavailable` when Redis refuses for
        good or, without a spool, stays away; events before the failing round trip are accepted, and pushing all of
        them again is safe.
        """
        accepted = 0
        payloads = (event.to_json() for event in events)
        for batch in _round_trips(payloads):
            self._append_batch(batch)
            accepted += len(batch)
        return accepted

    def backlog(self) -> Backlog:
        """What waits in this lane now."""
        with mapped_errors(self._settings):
            return read_backlog(self._client, self._stream)

    @property
    def away(self) -> str:
        """Why Redis could not be used when it was last tried, and what to do; empty when it could."""
        return self._away

    def spooled(self) -> Spooled:
        """What this process has appended that waits on this machine; also after `close`."""
        return self._spool.own()

    def all_spooled(self) -> Spooled:
        """The same of every process of this data dir."""
        return self._spool.all()

    def send_spooled(self, seconds: float = math.inf) -> bool:
        """Send what is spooled for this lane, by whichever process, oldest first, for about `seconds` at most.

        True when nothing is left, False when time ran out or the stream is at high water. Raises `StreamUnavailable`.
        """
        paths = self._spool.paths()
        if not paths:
            return True
        started = time.monotonic()
        try:
            with mapped_errors(self._settings):
                done = all(self._send_file(path, started + seconds) for path in paths)
        except StreamAway as error:
            self._put_off(error, started)
            raise
        self._away = ""
        return done

    def _append_batch(self, payloads: Sequence[bytes]) -> None:
        if not self._settings.spool:
            with mapped_errors(self._settings):
                self._send(payloads, self._settings.append_timeout)
        elif not self._sent_behind_the_spool(payloads):
            self._spool.append(payloads, self._away or f"what is spooled waits for room in the {self._lane} stream")
            if self._sender is None:
                self._sender = threading.Thread(target=self._keep_sending, name="spool-sender", daemon=True)
                self._sender.start()

    def _sent_behind_the_spool(self, payloads: Sequence[bytes]) -> bool:
        """Send the spool, then `payloads`. False when they must be spooled."""
        started = time.monotonic()
        if started < self._retry_at:
            return False
        try:
            if not self.send_spooled(SEND_SECONDS):
                return False
            with mapped_errors(self._settings):
                self._send(payloads, RECONNECT_SECONDS)
        except StreamAway as error:
            self._put_off(error, started)
            return False
        self._away = ""
        return True

    def _put_off(self, error: StreamAway, started: float) -> None:
        """Leave Redis alone for a while; the time spent on a Redis that has just gone says nothing of the next try."""
        now = time.monotonic()
        took = 0.0 if self._has_answered else now - started
        self._has_answered = False
        self._away = str(error)
        self._retry_at = now + min(LONGEST_RETRY, max(FIRST_RETRY, 10 * took))

    def _keep_sending(self) -> None:
        """Thread: an agent that says nothing more has its spool sent as well."""
        while not self._closing.wait(FIRST_RETRY):
            self._send_if_possible()

    def _send_if_possible(self, early: float = 0.0) -> None:
        """Try unless Redis is to be left alone for more than `early` seconds."""
        if time.monotonic() < self._retry_at - early:
            return
        with suppress(RetryableError, OSError):  # it stays where it is, `spooled` and `away` tell
            self.send_spooled(SEND_SECONDS)

    def _send_file(self, path: Path, until: float) -> bool:
        """Send a spool file batch by batch and delete it; False when time is up or the stream is at high water.

        Each batch and its mark are one transaction, so that a sender that dies is not repeated by the next: a revision
        sent twice could overtake a newer one that came in between.
        """
        client: Any = self._client  # redis-py types an answer as every form it could be decoded to; ours are bytes
        mark = self._keys.spool_mark(path.name)
        while time.monotonic() < until and self._high_water.reason() is None:
            self._has_answered = True
            with locked(path) as file:
                if file is None:
                    return True
                records = file.unsent(int(client.get(mark) or 0))
                if not records:
                    file.remove()
                    return True
                batch = next(_round_trips(record.payload for record in records))
                end = records[len(batch) - 1].end
                pipeline = client.pipeline(transaction=True)
                for record in records[: len(batch)]:
                    fields = {EVENT_FIELD: record.payload, ACCEPTED_FIELD: record.accepted_ms}
                    pipeline.xadd(self._stream, fields)
                pipeline.set(mark, end, ex=MARK_SECONDS)
                pipeline.execute()
                reached(Point.AFTER_XADD)
                file.advance(end)
        return False

    def _send(self, payloads: Sequence[bytes], patience: float) -> None:
        """XADD, waiting at high water or for memory, and `patience` seconds for a Redis that has answered before."""
        started = time.monotonic()
        deadline = started + self._settings.append_timeout
        while True:
            try:
                self._wait_below_high_water(payloads, deadline)
                refused, why = self._add(payloads)
                if why is None:
                    reached(Point.AFTER_XADD)
                    return
                if not isinstance(why, redis.exceptions.OutOfMemoryError) or time.monotonic() >= deadline:
                    raise why
                payloads = payloads[refused:]
                time.sleep(POLL)
            except TRANSIENT:
                # A Redis that was never there is a wrong address, more likely than a restart: say so at once.
                if not self._has_answered or time.monotonic() >= started + patience:
                    raise
                time.sleep(POLL)

    def _add(self, payloads: Sequence[bytes]) -> tuple[int, Exception | None]:
        """XADD all in one round trip; the place of the first that was refused, and why, None when none was."""
        pipeline = self._client.pipeline(transaction=False)
        for payload in payloads:
            pipeline.xadd(self._stream, {EVENT_FIELD: payload})
        answers = pipeline.execute(raise_on_error=False)
        return next(((at, answer) for at, answer in enumerate(answers) if isinstance(answer, Exception)), (0, None))

    def _wait_below_high_water(self, payloads: Sequence[bytes], deadline: float) -> None:
        while reason := self._high_water.reason_for(payloads):
            self._has_answered = True
            if time.monotonic() >= deadline:
                raise StreamFull(
                    f"the {self._lane} stream is at its high-water mark ({reason}) and stayed there for "
                    f"{self._settings.append_timeout:g} s: check with `scope-recall status` that workers are running, "
                    "add workers, or push again later"
                )
            time.sleep(POLL)
        self._has_answered = True


def read_backlog(client: redis.Redis, stream: str) -> Backlog:
    """Length and pending of a stream that may not exist yet."""
    pipeline = client.pipeline(transaction=False)
    pipeline.xlen(stream)
    pipeline.xinfo_groups(stream)
    length, groups = pipeline.execute(raise_on_error=False)
    for answer in (length, groups):
        if isinstance(answer, Exception) and "no such key" not in str(answer):
            raise answer
    rows: list[dict[str, Any]] = [] if isinstance(groups, Exception) else groups
    pending = sum(int(row["pending"]) for row in rows if row["name"] == GROUP.encode())
    return Backlog(length=int(length), pending=pending)


def _round_trips(payloads: Iterator[bytes]) -> Iterator[list[bytes]]:
    """Cut the payloads into lists of at most STEP_EVENTS and about STEP_BYTES."""
    batch: list[bytes] = []
    size = 0
    for payload in payloads:
        if batch and (len(batch) >= STEP_EVENTS or size + len(payload) > STEP_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(payload)
        size += len(payload)
    if batch:
        yield batch
