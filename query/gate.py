"""A few at a time. No I/O; waits."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Semaphore


class Gate:
    """Lets `places` callers work at once; one that has waited until its time is up goes on all the same."""

    def __init__(self, places: int) -> None:
        self._free = Semaphore(places)

    @contextmanager
    def place(self, until: float) -> Iterator[None]:
        """Wait for a place, at most until `until`, a `time.monotonic()` value."""
        held = self._free.acquire(timeout=max(0.0, until - time.monotonic()))
        try:
            yield
        finally:
            if held:
                self._free.release()
