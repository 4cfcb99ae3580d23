"""Producer processes that push as long as they are asked to: new turns, and if wanted revisions and repeats. Does I/O.

A turn belongs to one producer, so which of its revisions is the last one accepted is known.
"""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from producer_process import ProducerProcess

from producers.settings import Lane

APPEND_TURNS = 10
PAUSE = 0.05
"""Seconds between two appends of a producer: 800 turns a second from four."""
WAITING_APPENDS = 3
"""Of one producer; what Redis does not take at once is not asked for in advance."""
OLD_SHARE = 0.4
"""Of the appends, those of turns that were pushed before, where that is wanted."""


@dataclass
class Pushed:
    """What one producer was asked to append."""

    process: ProducerProcess
    numbers: list[int] = field(default_factory=list)
    """Of its turns, in the order in which each was first pushed."""


class Push:
    """A producer process for each of `lanes`. Use as a context manager."""

    def __init__(
        self, folder: Path, lanes: Sequence[Lane], environment: dict[str, str], revise: random.Random | None = None
    ) -> None:
        self.producers = [
            Pushed(ProducerProcess(lane, folder / f"report-{number}", environment)) for number, lane in enumerate(lanes)
        ]
        self._revise = revise
        self._next = itertools.count(0, APPEND_TURNS)
        self.revisions: dict[int, int] = {}
        """By number: the revision pushed last."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for producer in self.producers:
            producer.process.stop()

    def go_on(self, until: Callable[[], bool]) -> None:
        """Push until `until` is true."""
        while not until():
            for producer in self.producers:
                if len(producer.process.unreported()) < WAITING_APPENDS:
                    self._append(producer)
            time.sleep(PAUSE)

    def settle(self, seconds: float) -> None:
        """Wait until every append has returned."""
        deadline = time.monotonic() + seconds
        while waiting := [len(producer.process.unreported()) for producer in self.producers if producer.numbers]:
            if not any(waiting):
                return
            assert time.monotonic() < deadline, f"appends that have not returned: {waiting}"
            time.sleep(PAUSE)

    def _append(self, producer: Pushed) -> None:
        first, revision = self._choose(producer)
        producer.process.append(first, APPEND_TURNS, revision)
        self.revisions.update(dict.fromkeys(range(first, first + APPEND_TURNS), revision))

    def _choose(self, producer: Pushed) -> tuple[int, int]:
        """First number and revision of the next append: new turns, or old ones revised, put back or as they are."""
        rng = self._revise
        if rng is not None and producer.numbers and rng.random() < OLD_SHARE:
            first = rng.choice(producer.numbers[::APPEND_TURNS])
            return first, rng.choice((self.revisions[first], 0, 1, 2))
        first = next(self._next)
        producer.numbers += range(first, first + APPEND_TURNS)
        return first, 0


def after(seconds: float) -> Callable[[], bool]:
    """True once so much time has passed."""
    until = time.monotonic() + seconds
    return lambda: time.monotonic() >= until
