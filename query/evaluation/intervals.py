"""How sure a mean is: percentile bootstrap over questions, paired where two settings answered the same ones. Pure.

Questions are drawn with replacement and the mean taken anew, `RESAMPLES` times; the middle 95% of those means is the
interval (Efron & Tibshirani, An Introduction to the Bootstrap, 1993, ch. 13). For a gain the difference of each
question is drawn, which takes out how hard the question is. Seeded: the same figures give the same interval.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]

RESAMPLES = 5000
BLOCK = 500
"""Resamples drawn at once, so that thousands of questions stay within some megabytes."""
TAILS = (0.025, 0.975)
SEED = 20250101
MIN_DIFFERING = 6
"""Questions that must differ before a gain counts: with five, all of one sign come up by chance in 1 of 16 cases."""
NOISE = 1e-12
"""Differences below are rounding."""


@dataclass(frozen=True)
class Interval:
    """A mean over `questions`, and where it lies with 95% confidence."""

    mean: float
    low: float
    high: float
    questions: int

    def as_dict(self) -> dict[str, float]:
        return {"mean": round(self.mean, 4), "low": round(self.low, 4), "high": round(self.high, 4)}

    def __str__(self) -> str:
        return f"{self.mean:.3f} ({self.low:.3f} to {self.high:.3f})"


@dataclass(frozen=True)
class Gain(Interval):
    """A mean difference to another setting on the same questions."""

    differing: int
    """Questions on which the two differ."""

    @property
    def beyond_chance(self) -> bool:
        """Whether the interval leaves out 0, and enough questions differ for that to mean something."""
        return self.differing >= MIN_DIFFERING and (self.low > 0 or self.high < 0)

    def as_dict(self) -> dict[str, float]:
        return {**super().as_dict(), "differing": self.differing, "beyond_chance": self.beyond_chance}

    def __str__(self) -> str:
        return f"{self.mean:+.3f} ({self.low:+.3f} to {self.high:+.3f})"


def intervals(columns: Values) -> list[Interval]:
    """The interval of each column; shape (questions, columns), at least one question."""
    questions = len(columns)
    return [
        Interval(float(mean), min(float(low), float(mean)), max(float(high), float(mean)), questions)
        for mean, low, high in zip(columns.mean(axis=0), *_bounds(columns), strict=True)
    ]


def gains(columns: Values, others: Values) -> list[Gain]:
    """The gain of each column over the same column of `others`, question by question; both of one shape."""
    differences = np.where(np.abs(columns - others) < NOISE, 0.0, columns - others)
    differing = np.count_nonzero(differences, axis=0)
    return [
        Gain(one.mean, one.low, one.high, one.questions, int(count))
        for one, count in zip(intervals(differences), differing, strict=True)
    ]


def gain(values: Sequence[float] | Values, others: Sequence[float] | Values) -> Gain:
    """The gain of one series over another."""
    columns = [np.asarray(one, np.float64).reshape(-1, 1) for one in (values, others)]
    return gains(*columns)[0]


def _bounds(columns: Values) -> tuple[Values, Values]:
    questions = len(columns)
    # A generator of its own for each number of questions: what is compared beside it changes nothing.
    random = np.random.default_rng([SEED, questions])
    even = np.full(questions, 1 / questions)
    blocks = [random.multinomial(questions, even, size=BLOCK) @ columns for _ in range(RESAMPLES // BLOCK)]
    low, high = np.quantile(np.concatenate(blocks) / questions, TAILS, axis=0)
    return low, high
