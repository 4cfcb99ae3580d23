"""The time of one recall. Reads the monotonic clock."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager


class Stopwatch:
    """Times the stages of one recall and knows when it must be over."""

    def __init__(self, seconds: float) -> None:
        self._start = time.monotonic()
        self.deadline = self._start + seconds
        """A `time.monotonic()` value."""
        self.timings: dict[str, float] = {}

    def elapsed(self) -> float:
        return time.monotonic() - self._start

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Record the milliseconds that the block took, all times together."""
        start = time.monotonic()
        yield
        self.timings[name] = self.timings.get(name, 0.0) + (time.monotonic() - start) * 1000
