"""A Redis server of the test's own: no supervisor starts it again, so that it stays away as long as a test likes.

Does I/O: a process and its files.
"""

from __future__ import annotations

import signal
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

from producers.settings import load_settings
from workers.supervision.process import Process, end, spawn
from workers.supervision.redis_server import STOP_SECONDS, prepare, redis_log, wait_until_ready

How = Literal["killed", "frozen"]


class ExternalRedis:
    """Runs from entry to exit, except while it is away."""

    def __init__(self, folder: Path) -> None:
        self._settings = load_settings(data_dir=folder)
        self._process: Process | None = None

    @property
    def url(self) -> str:
        return self._settings.redis_location

    def __enter__(self) -> Self:
        self._process = spawn(prepare(self._settings), redis_log(self._settings))
        wait_until_ready(self._settings, self._process)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)
        end([self._process], STOP_SECONDS)

    def go(self, how: How) -> None:
        """Away: killed (-9), so that connections are refused, or frozen, so that nothing is ever answered."""
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL if how == "killed" else signal.SIGSTOP)
        if how == "killed":
            self._process.wait()

    def come_back(self, how: How) -> None:
        """As it was, with everything that it had answered."""
        assert self._process is not None
        if how == "killed":
            self.__enter__()
        else:
            self._process.send_signal(signal.SIGCONT)
