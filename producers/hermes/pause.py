"""How long something that failed is left alone, and saying so once. Logs, without what anybody said."""

from __future__ import annotations

import logging
import threading
import time

FIRST, LONGEST = 5.0, 60.0
"""Seconds without another try after a first and after many failures in a row."""

log = logging.getLogger("scope_recall.hermes")
"""Hermes' own logging takes it up."""


class Pause:
    """Left alone after a failure for longer each time. Thread-safe."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._lock = threading.Lock()
        self._until = 0.0
        self._next = FIRST
        self._failing = False

    @property
    def on(self) -> bool:
        return time.monotonic() < self._until

    @property
    def failing(self) -> bool:
        """Nothing has succeeded since the last failure."""
        return self._failing

    def failed(self, error: Exception, retry_after: float | None = None) -> None:
        with self._lock:
            seconds = min(LONGEST, max(self._next, retry_after or 0.0))
            self._until = time.monotonic() + seconds
            self._next = min(LONGEST, 2 * self._next)
            first, self._failing = not self._failing, True
        if first:
            log.warning("%s: %s. The conversation goes on without it; tried again later", self._what, error)

    def succeeded(self) -> None:
        with self._lock:
            was_failing, self._failing = self._failing, False
            self._until, self._next = 0.0, FIRST
        if was_failing:
            log.info("%s: works again", self._what)
