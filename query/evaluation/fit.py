"""A small fit of the ranking's weights to a labelled set, and whether it holds on questions it has not seen. Pure.

Sought is the highest mean of (R@5 + MRR) / 2: what a context block holds, and how soon it comes. The search starts from
the best of the defaults and some random points, then changes one weight at a time over a grid until none gains
(coordinate ascent). R@5 moves in steps, so there is no slope to follow, and a handful of weights needs none.

A fit always gains on what it was fitted to. So the questions are split by conversation: the weights are fitted without
one part, measured on it, and so for each part. That held-out gain is the one to believe (cross-validation; Stone 1974).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np

from query.evaluation.intervals import Gain, Values, gain
from query.evaluation.metrics import Judged, TurnRef, score_question

F = TypeVar("F")
W = TypeVar("W")

FOLDS = 5
RANDOM_POINTS = 24
ROUNDS = 3
"""Times that every weight is tried; two do on the sets measured."""
GRID = 8
"""Steps of a weight's range."""
LEAST_STEP = 0.001
"""What a change must gain: less is the luck of one question."""
SEED = 20250101

Point = tuple[float, ...]
Ranges = Mapping[str, tuple[float, float]]
"""Weight → lowest and highest value to try."""


@dataclass(frozen=True)
class Case(Generic[F]):
    """A question with evidence and what its candidates are ranked by, gathered once."""

    judged: Judged
    conversation: str
    """Cases of one conversation are never split between fit and check."""
    features: F


@dataclass(frozen=True)
class Fit(Generic[W]):
    """Fitted weights, and their gain over the defaults in (R@5 + MRR) / 2."""

    defaults: W
    weights: W
    in_sample: Gain
    held_out: Gain | None
    """None when all questions are of one conversation, so that nothing can be held out."""
    folds: int

    def as_dict(self) -> dict[str, Any]:
        return {
            "defaults": _values(self.defaults),
            "weights": _values(self.weights),
            "in_sample": self.in_sample.as_dict(),
            "held_out": None if self.held_out is None else self.held_out.as_dict(),
            "folds": self.folds,
        }

    def advice(self) -> str:
        """What to do with it, in a sentence."""
        if self.held_out is None:
            return (
                f"fit: {self.in_sample} on the questions it was fitted to; they are all of one conversation, so that "
                "nothing says whether it holds for others: keep the default weights"
            )
        told = f"held out, the fitted weights change (R@5 + MRR) / 2 by {self.held_out}"
        if self.held_out.beyond_chance and self.held_out.mean > 0:
            return f"fit: {told}: worth setting, when these questions are like those to come"
        return f"fit: {told}, and on the questions fitted to by {self.in_sample}: keep the default weights"


def fit_weights(
    cases: Sequence[Case[F]],
    rank: Callable[[F, W], Sequence[TurnRef]],
    defaults: W,
    ranges: Ranges | None = None,
    folds: int = FOLDS,
) -> Fit[W]:
    """Fit the float fields of the frozen dataclass `defaults`, within `ranges` (else 0 to three times the default, at
    least 1). `rank` is pure: what a case's candidates are ranked by, and weights, to its turns, best first. The same
    cases give the same fit. Raises ValueError without cases and for a range of no such field."""
    if not cases:
        raise ValueError("no question with evidence to fit to")
    search = _Search(cases, rank, defaults, ranges or {})
    everything = np.arange(len(cases))
    start = search.of(search.start)
    fitted = search.best(everything)
    parts = _parts([case.conversation for case in cases], folds)
    held_out = None
    if len(parts) > 1:
        checked = np.zeros(len(cases))
        for part in parts:
            checked[part] = search.of(search.best(np.setdiff1d(everything, part)))[part]
        held_out = gain(checked, start)
    return Fit(defaults, search.weights(fitted), gain(search.of(fitted), start), held_out, len(parts))


class _Search(Generic[F, W]):
    """Looks for the best weights on some of the cases. Each point is ranked once, for all searches."""

    def __init__(
        self, cases: Sequence[Case[F]], rank: Callable[[F, W], Sequence[TurnRef]], defaults: W, ranges: Ranges
    ) -> None:
        self._cases = cases
        self._rank = rank
        self._defaults = defaults
        values = _values(defaults)
        unknown = sorted(set(ranges) - set(values))
        if unknown:
            raise ValueError(f"range for {', '.join(unknown)}: no such weight; there are {', '.join(values)}")
        self._names = tuple(values)
        self.start: Point = tuple(values.values())
        self._grid = [_grid(value, ranges.get(name)) for name, value in values.items()]
        random = np.random.default_rng(SEED)
        self._random: list[Point] = [
            tuple(float(random.choice(axis)) for axis in self._grid) for _ in range(RANDOM_POINTS)
        ]
        self._known: dict[Point, Values] = {}

    def weights(self, point: Point) -> W:
        changes: dict[str, Any] = dict(zip(self._names, point, strict=True))
        made: W = dataclasses.replace(self._defaults, **changes)  # type: ignore[type-var]
        return made

    def of(self, point: Point) -> Values:
        """Each case's (R@5 + MRR) / 2 with these weights."""
        if point not in self._known:
            weights = self.weights(point)
            self._known[point] = np.array([_score(case, self._rank(case.features, weights)) for case in self._cases])
        return self._known[point]

    def best(self, among: np.ndarray) -> Point:
        """The best point on these cases; a weight that does not gain anything is at its default."""

        def mean(point: Point) -> float:
            return float(self.of(point)[among].mean())

        best = _first_best([self.start, *self._random], mean)
        for _ in range(ROUNDS):
            before = best
            for axis, values in enumerate(self._grid):
                beside = [(*best[:axis], value, *best[axis + 1 :]) for value in values]
                best = _first_best([best, *beside], mean)
            if best == before:
                break
        for axis, value in enumerate(self.start):
            best = _first_best([(*best[:axis], value, *best[axis + 1 :]), best], mean)
        return best


def _first_best(points: Iterable[Point], mean: Callable[[Point], float]) -> Point:
    """The first point that none of the others passes by `LEAST_STEP`."""
    best, highest = None, -1.0
    for point in points:
        found = mean(point)
        if best is None or found >= highest + LEAST_STEP:
            best, highest = point, found
    assert best is not None
    return best


def _score(case: Case[F], ranked: Sequence[TurnRef]) -> float:
    row = score_question(case.judged.evidence, ranked)
    return (row.recall[5] + row.mrr) / 2


def _grid(default: float, bounds: tuple[float, float] | None) -> list[float]:
    low, high = bounds or (0.0, max(1.0, 3 * default))
    return sorted({default, *(round(float(value), 4) for value in np.linspace(low, high, GRID + 1))})


def _values(weights: object) -> dict[str, float]:
    """The float fields."""
    fields = dataclasses.asdict(weights)  # type: ignore[call-overload]
    return {name: value for name, value in fields.items() if isinstance(value, float)}


def _parts(conversations: Sequence[str], folds: int) -> list[np.ndarray]:
    """Positions in at most `folds` parts of like size, no conversation in two; the largest conversations first."""
    by_conversation: dict[str, list[int]] = {}
    for position, name in enumerate(conversations):
        by_conversation.setdefault(name, []).append(position)
    parts: list[list[int]] = [[] for _ in range(min(folds, len(by_conversation)))]
    for positions in sorted(by_conversation.values(), key=lambda one: (-len(one), one)):
        min(parts, key=len).extend(positions)
    return [np.array(sorted(part)) for part in parts]
