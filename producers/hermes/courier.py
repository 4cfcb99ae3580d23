"""The thread that sends what waits on the disk, so that no call of Hermes waits for it. Does I/O through the sender."""

from __future__ import annotations

import sqlite3
import threading
import time

from producers.errors import ScopeRecallError, ServiceAway
from producers.hermes.pause import Pause
from producers.hermes.senders import Sender

LOOK_SECONDS = 1.0
"""Between two looks at what may wait, also for another process of this home that has died."""


class Courier:
    """Delivers in the background from `start` to `stop`."""

    def __init__(self, sender: Sender, pause: Pause) -> None:
        self._sender = sender
        self._pause = pause
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="scope-recall-courier", daemon=True)
            self._thread.start()

    def wake(self) -> None:
        """There is something to send."""
        self._wake.set()

    def stop(self, seconds: float) -> None:
        """Send what can be sent in `seconds`; the rest stays on the disk for whoever comes next."""
        self._stopped.set()
        self._wake.set()
        until = time.monotonic() + seconds
        if self._thread is not None:
            self._thread.join(seconds)
        while not self._pause.on and time.monotonic() < until and not self.deliver():
            pass

    def deliver(self) -> bool:
        """One round; True when nothing is left to do now."""
        if not self._lock.acquire(blocking=False):
            return True  # somebody is at it
        try:
            done = self._sender.deliver()
        except (ScopeRecallError, OSError, sqlite3.Error) as error:
            self._pause.failed(error, error.retry_after if isinstance(error, ServiceAway) else None)
            return True
        finally:
            self._lock.release()
        self._pause.succeeded()
        return done

    @property
    def paused(self) -> bool:
        return self._pause.on

    def _run(self) -> None:
        while not self._stopped.is_set():
            self._wake.wait(LOOK_SECONDS)
            self._wake.clear()
            while not self._pause.on and not self._stopped.is_set() and not self.deliver():
                pass
