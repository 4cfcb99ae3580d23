"""Work that goes on in threads while a test does something else."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Self


class Background:
    """Runs each function in a thread of its own from the block's start; they end when `stop` is set, at its end."""

    def __init__(self, *runs: Callable[[], None]) -> None:
        self.stop = threading.Event()
        self._threads = [threading.Thread(target=run) for run in runs]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop.set()
        for thread in self._threads:
            thread.join()
