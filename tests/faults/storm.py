"""Which kills a storm makes, from a seed. Pure.

The kinds are gone through in a shuffled order again and again, so that a long storm has each of them equally often.
What a seed cannot fix is how far the other processes have come at that moment.
"""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass

from producers.crash_points import Point

ANY_TIME = "any time"
PROCESSES = ("producer", "intake", "worker-1", "worker-2", "maintenance", "redis")
"""What is killed at any time, whatever it does."""
UPSERT_MS = 17.0
"""Median of an upsert of one batch of the harness, measured: a kill after up to as much most often lands within it."""
LONGEST_DELAY_MS = 500.0
"""Of a kill at any time, after the push."""
MOST_PASSAGES = 2
"""A kill at a point is made at its first or second passage: a push of 100 turns is enough for two."""


@dataclass(frozen=True)
class Kill:
    """One kill of a storm."""

    point: Point | None
    """None: at any time."""
    process: str
    """The kind of process that passes the point, or the name of the one to kill."""
    passage: int
    after_ms: float

    @property
    def kind(self) -> tuple[str, str]:
        """(point, process) as the table shows it."""
        return self.point or ANY_TIME, self.process.partition("-")[0]


def passed_by(point: Point) -> str:
    """The kind of process that passes the point."""
    if point is Point.AFTER_XADD:
        return "producer"
    return "intake" if point in (Point.AFTER_READ, Point.AFTER_ENQUEUE) else "worker"


def plan(seed: int, kills: int) -> list[Kill]:
    """The kills of a storm, in order."""
    rng = random.Random(seed)
    kinds: list[tuple[Point | None, str]] = [(None, process) for process in PROCESSES]
    kinds += [(point, process) for point in Point for process in (passed_by(point), "redis")]

    def shuffled() -> list[tuple[Point | None, str]]:
        return rng.sample(kinds, len(kinds))

    endless = itertools.chain.from_iterable(shuffled() for _ in itertools.count())
    return [
        Kill(*kind, rng.randint(1, MOST_PASSAGES), _delay(kind[0], rng)) for kind in itertools.islice(endless, kills)
    ]


def _delay(point: Point | None, rng: random.Random) -> float:
    if point is None:
        return rng.uniform(0, LONGEST_DELAY_MS)
    return rng.uniform(0.1, UPSERT_MS) if point is Point.MID_LANCE_UPSERT else 0.0
