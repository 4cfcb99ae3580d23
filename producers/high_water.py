"""High water: whether a stream may take more, asked of Redis no more often than the promise needs. Does I/O on Redis.

The promise: at the mark nothing is sent, and no process goes further beyond it than by what it sends between two looks.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import redis

from producers.settings import Lane, Settings

STEP_EVENTS = 500
STEP_BYTES = 4 << 20
"""What is sent in one round trip, and between two looks. More events gain nothing (measured)."""
LOOK_SECONDS = 0.05
"""How long a look counts at most: others append as well. Asking at each append of one event cost it 40% of its rate."""

MEMORY_SHARE = 0.8
"""Of Redis' maxmemory, what may be in use: with the rest gone no job could be queued that would drain it. Producers
that look at the same moment each add up to one round trip (`STEP_BYTES`) more."""


class HighWater:
    """The mark of one stream, as one process sees it. Errors are redis-py's."""

    def __init__(self, client: redis.Redis, stream: str, lane: Lane, settings: Settings) -> None:
        self._client = client
        self._stream = stream
        self._lane: Lane = lane
        self._settings = settings
        self._room_events = 0
        self._room_bytes = 0
        self._looked = -LOOK_SECONDS

    def reason(self) -> str | None:
        """Why nothing may be sent now; None when one round trip may be."""
        reason = self._look()
        self._room_events = 0  # whoever asks this way is going to use it
        return reason

    def reason_for(self, payloads: Sequence[bytes]) -> str | None:
        """Why `payloads` may not be sent now; None when they may be, and are counted as sent."""
        size = sum(map(len, payloads))
        recent = time.monotonic() < self._looked + LOOK_SECONDS
        if not (recent and len(payloads) <= self._room_events and size <= self._room_bytes):
            reason = self._look()
            if reason:
                return reason
        self._room_events -= len(payloads)
        self._room_bytes -= size
        return None

    def _look(self) -> str | None:
        pipeline = self._client.pipeline(transaction=False)
        pipeline.xlen(self._stream)
        pipeline.info("memory")
        length, memory = pipeline.execute()
        self._looked = time.monotonic()
        self._room_events = min(STEP_EVENTS, self._settings.high_water_of(self._lane)[1] - length)
        self._room_bytes = min(STEP_BYTES, self._settings.high_water_bytes - int(memory.get("used_memory", 0)))
        return over_high_water(self._lane, length, memory, self._settings)


def over_high_water(lane: Lane, length: int, memory: Mapping[str, Any], settings: Settings) -> str | None:
    """Why an append waits, given a stream's length and Redis' INFO memory; None when it does not."""
    setting, most = settings.high_water_of(lane)
    if length >= most:
        return f"{length:,} entries wait, {setting} is {most:,}"
    used, limit = int(memory.get("used_memory", 0)), int(memory.get("maxmemory", 0))
    if used >= settings.high_water_bytes:
        return f"Redis holds {used:,} bytes, high_water_bytes is {settings.high_water_bytes:,}"
    if limit and used >= limit * MEMORY_SHARE:
        return f"Redis holds {used:,} bytes, {MEMORY_SHARE:.0%} or more of its maxmemory {limit:,}"
    return None
