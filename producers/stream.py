"""Appending turn events to a Redis stream. Does I/O.

An append returns once Redis has taken the events. At high water it waits, then raises `StreamFull`; nothing is dropped.
Delivery is at least once: a call that is tried again after a broken connection may add an event twice, and the event's
identity makes the second one a duplicate.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import redis

from producers.connection import TRANSIENT, connect, mapped_errors
from producers.crash_points import Point, reached
from producers.errors import StreamFull
from producers.events import TurnEvent
from producers.keys import EVENT_FIELD, GROUP, Keys
from producers.settings import Lane, Settings

PIPELINE_EVENTS = 500
"""Events in one round trip; more gains nothing (measured) and delays the next high-water check."""
PIPELINE_BYTES = 4 << 20
POLL = 0.05
"""Seconds between two looks at a stream that is at high water."""


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
        self._stream = Keys(settings.key_prefix).stream(lane)
        self._lane = lane
        self._has_answered = False

    def __enter__(self) -> EventStream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._client.close()

    def append(self, events: Iterable[TurnEvent]) -> int:
        """Append `events` in order, however many; returns how many were accepted (all of them).

        Raises `StreamFull` or `StreamUnavailable` after `append_timeout` seconds without progress; events before the
        failing round trip are accepted, and pushing all of them again is safe.
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

    def _append_batch(self, payloads: Sequence[bytes]) -> None:
        deadline = time.monotonic() + self._settings.append_timeout
        with mapped_errors(self._settings):
            while True:
                try:
                    self._wait_below_high_water(deadline)
                    pipeline = self._client.pipeline(transaction=False)
                    for payload in payloads:
                        pipeline.xadd(self._stream, {EVENT_FIELD: payload})
                    pipeline.execute()
                    reached(Point.AFTER_XADD)
                    return
                except TRANSIENT:
                    # A Redis that was never there is a wrong address, more likely than a restart: say so at once.
                    if not self._has_answered or time.monotonic() >= deadline:
                        raise
                    time.sleep(POLL)

    def _wait_below_high_water(self, deadline: float) -> None:
        while True:
            pipeline = self._client.pipeline(transaction=False)
            pipeline.xlen(self._stream)
            pipeline.info("memory")
            length, memory = pipeline.execute()
            self._has_answered = True
            reason = _over_high_water(length, memory, self._settings)
            if reason is None:
                return
            if time.monotonic() >= deadline:
                raise StreamFull(
                    f"the {self._lane} stream is at its high-water mark ({reason}) and stayed there for "
                    f"{self._settings.append_timeout:g} s: check with `scope-recall status` that workers are running, "
                    "add workers, or push again later"
                )
            time.sleep(POLL)


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


def _over_high_water(length: int, memory: dict[str, Any], settings: Settings) -> str | None:
    if length >= settings.high_water:
        return f"{length:,} entries wait, high_water is {settings.high_water:,}"
    used = int(memory.get("used_memory", 0))
    if used >= settings.high_water_bytes:
        return f"Redis holds {used:,} bytes, high_water_bytes is {settings.high_water_bytes:,}"
    return None


def _round_trips(payloads: Iterator[bytes]) -> Iterator[list[bytes]]:
    """Cut the payloads into lists of at most PIPELINE_EVENTS and about PIPELINE_BYTES."""
    batch: list[bytes] = []
    size = 0
    for payload in payloads:
        if batch and (len(batch) >= PIPELINE_EVENTS or size + len(payload) > PIPELINE_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(payload)
        size += len(payload)
    if batch:
        yield batch
