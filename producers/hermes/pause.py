"""How long something that failed is left alone, and saying so once. Logs, without what anybody said."""

from __future__ import annotations

import logging
import threading
import time

FIRST, LONGEST = 5.0, 60.0
"""Seconds without another try after a first and after many failures in a row."""

log = logging.getLogger("scope_recall.hermes")
"""Hermes' own logging takes it up."""

_failing: set[str] = set()
"""What was said to fail in this process, and has not worked since: one line for all of its sessions."""
_lock = threading.Lock()


class Pause:
    """Left alone after a failure for longer each time. Thread-safe."""

    def __init__(self, what: str) -> None:
        """`what`: the same for all sessions that it is the same failure for."""
        self._what = what
        self._until = 0.0
        self._next = FIRST

    @property
    def on(self) -> bool:
        return time.monotonic() < self._until

    def failed(self, error: Exception, seconds: float | None = None) -> None:
        """`seconds`: how long to leave it alone, where that is known; 0 for what may work the next time."""
        with _lock:
            if seconds is None:
                seconds, self._next = self._next, min(LONGEST, 2 * self._next)
            self._until = time.monotonic() + min(LONGEST, seconds)
            first = self._what not in _failing
            _failing.add(self._what)
        if first:
            log.warning("%s: %s. The conversation goes on without it; tried again later", self._what, error)

    def succeeded(self) -> None:
        with _lock:
            self._until, self._next = 0.0, FIRST
            was_failing = self._what in _failing
            _failing.discard(self._what)
        if was_failing:
            log.info("%s: works again", self._what)
