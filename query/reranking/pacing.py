"""Spending a deadline on the best candidates first. No I/O; reads the monotonic clock.

A reranker here is a forward pass whose time is known in advance only from the passes before it. So each one keeps a
`Pace`, and stops while the next pass would still have fitted by the pace's word, not after it has overrun.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

Score = TypeVar("Score")
Charge = Callable[[Sequence[int]], int]
"""Lengths of the texts of a batch, in tokens → what reading them costs, in tokens of a pass."""

SAFETY = 1.25
"""A batch is started only when this many times its expected duration is left; passes of one size vary by about 20%."""
WINDOW_SHARE = 0.5
"""Share of the remaining time given to one window. Within a window texts are sorted by length, so a pace that was too
hopeful can cost at most a window's worth of order; the next window is planned by the corrected pace."""
SMOOTHING = 0.3
"""Weight of a slower measurement in the pace: follows a machine that became busy within a few batches."""
RECOVERY = 0.7
"""Weight of a faster one: what was slow once, as a pass that loads libraries, is not to be held against the rest."""
DOUBT = 0.5
"""What the pace is multiplied by when not even one text is believed to fit: nothing is measured then, so a pace that is
wrong would stay wrong for good."""
WORTH_TRYING = 0.1
"""Seconds that were left when nothing was tried, from which the pace is doubted; with less it may well be right."""
PASS_TOKENS = 40
"""What starting a pass costs, in tokens: MiniLM on one core takes 7 ms to start and .17 ms a token. Without it the pace
learnt from a short query would forbid a batch of long texts."""


class Pace:
    """Seconds per token, measured as the work is done. One per reranker, shared by its callers under its lock."""

    def __init__(self) -> None:
        self._seconds_per_token = 0.0  # before the first measurement everything fits: the warm-up provides it
        self._lock = threading.Lock()
        self.callers = 0
        """Those at work now: they take turns, so that each gets its share of the time."""

    def record(self, tokens: int, seconds: float) -> None:
        """Take in what a batch that was charged `tokens` took."""
        newest = seconds / tokens
        known = self._seconds_per_token
        weight = SMOOTHING if newest > known else RECOVERY
        self._seconds_per_token = newest if not known else known + weight * (newest - known)

    def restart(self) -> None:
        """Forget what was measured; for after a pass that paid for more than itself."""
        self._seconds_per_token = 0.0

    def doubt(self) -> None:
        """Believe that a pass takes less: nothing could be tried."""
        self._seconds_per_token *= DOUBT

    @contextmanager
    def caller(self) -> Iterator[None]:
        """Count one more caller for as long as the block runs."""
        with self._lock:
            self.callers += 1
        try:
            yield
        finally:
            with self._lock:
                self.callers -= 1

    def expect(self, tokens: int) -> float:
        """Seconds to set aside for a batch that is charged `tokens`, the safety margin included."""
        return tokens * self._seconds_per_token * SAFETY


def to_the_longest(lengths: Sequence[int]) -> int:
    """The charge of one pass over texts that are padded to the longest of them."""
    return max(lengths) * len(lengths) + PASS_TOKENS


def run_in_time(
    lengths: Sequence[int],
    run: Callable[[list[int]], None],
    *,
    batch: int,
    pace: Pace,
    lock: threading.Lock,
    deadline: float | None,
    charge: Charge = to_the_longest,
) -> None:
    """Call `run` with batches of indices into `lengths` (tokens a text, best first) until all are done or time is up.

    Without a deadline the whole list is one window, sorted by length so that little is padded; with one, a window is
    as many of the best as the caller's part of `WINDOW_SHARE` of the remaining time pays for. A batch that does not fit
    any more is planned again, smaller. `lock` is held for one batch at a time: two passes at once on the same cores
    take longer than one after the other, and the pace stays true.
    """
    left = list(range(len(lengths)))
    asked = time.monotonic()
    with pace.caller():
        while left:
            batches = _window(left, lengths, batch, pace, deadline, charge)
            for indices in batches:
                if not _run_batch(indices, charge([lengths[index] for index in indices]), run, pace, lock, deadline):
                    break
                done = set(indices)
                left = [index for index in left if index not in done]
            else:
                continue
            if len(batches) == len(indices) == 1:  # not even the best one
                if len(left) == len(lengths) and deadline is not None and deadline - asked > WORTH_TRYING:
                    pace.doubt()
                return


def best_reached(scores: Sequence[Score | None]) -> list[Score | None]:
    """`scores` up to the first None, None from there on.

    What was reached must be the best of the first stage. A text further down whose score happens to be known (cached,
    or short and so early in its window) would otherwise be set against better ones that nobody has read.
    """
    reached = next((place for place, score in enumerate(scores) if score is None), len(scores))
    return [*scores[:reached], *[None] * (len(scores) - reached)]


def _window(
    left: Sequence[int], lengths: Sequence[int], batch: int, pace: Pace, deadline: float | None, charge: Charge
) -> list[list[int]]:
    """Batches of as many of the first texts as there is time for; at least 1, which `_run_batch` still may refuse."""
    if deadline is None:
        return _batches(left, lengths, batch)
    budget = (deadline - time.monotonic()) * WINDOW_SHARE / max(1, pace.callers)

    def expected(size: int) -> float:
        planned = _batches(left[:size], lengths, batch)
        return sum(pace.expect(charge([lengths[index] for index in indices])) for indices in planned)

    size = bisect_right(range(1, len(left) + 1), budget, key=expected)
    return _batches(left[: max(1, size)], lengths, batch)


def _batches(indices: Sequence[int], lengths: Sequence[int], batch: int) -> list[list[int]]:
    """The longest first, so that texts of like length are read together."""
    longest_first = sorted(indices, key=lambda index: (-lengths[index], index))
    return [longest_first[first : first + batch] for first in range(0, len(longest_first), batch)]


def _run_batch(
    indices: list[int],
    charged: int,
    run: Callable[[list[int]], None],
    pace: Pace,
    lock: threading.Lock,
    deadline: float | None,
) -> bool:
    """Run one batch if its turn comes in time; False when it did not."""
    if deadline is None:
        lock.acquire()
    else:
        patience = deadline - time.monotonic() - pace.expect(charged)
        if patience <= 0 or not lock.acquire(timeout=patience):
            return False
    try:
        began = time.monotonic()
        if deadline is not None and began + pace.expect(charged) > deadline:
            return False
        run(indices)
        pace.record(charged, time.monotonic() - began)
    finally:
        lock.release()
    return True
