"""The ranking: what the candidates of one question are scored by, and how the scores become one order. Pure.

    x     = z(cosine) + lexical · z(BM25 with neighbours) + length · z(log length)
    first = x on 0 to 1, + previous · that of the turn before, + following · that of the turn after, + day for a turn
            said on a day that the question names, + 1 for one that is the question itself: whoever asks for a turn
            by its day or its words means that one among its like
    final = z(first) + rerank · z(reranker) + final_length · z(log length), over the best of the first stage,
            + user for a user's turn, + opening · (1 to 0, from a session's first turn to its ninth),
            + SAME for a turn that is the question itself, so that all this leaves it first;
            without a reranker what follows z(first) is divided by 1 + rerank: it shall not count for more then

The final score is this on 0 to 1; where the reranker did not reach all, on .5 to 1 for those it reached, and half the
first score for the others.

z is (score - mean) / deviation over the candidates: scores of models of any scale can be added, a leg that is constant
or empty says nothing, and one that stands out counts for as much as it stands out. Ranks instead (RRF) lose that: R@5
fell by .03 to .08 on every set.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from producers.scripts import FOREIGN_SHARE, script_weights
from query.conversation import LEAN_CHARS

Scores = NDArray[np.float64]


@dataclass(frozen=True)
class Weights:
    """What each scoring counts for, against 1 for the cosine. Fitted on labelled sets; see `docs/recall.md`."""

    lexical: float = 0.3
    length: float = 0.2
    previous: float = 0.2
    following: float = 0.2
    day: float = 0.7
    """Less than 1, so that what is said of a day later can still be found by what it says."""
    rerank: float = 0.4
    final_length: float = 0.2
    """Length again, beside the reranker: a short turn has a good match for each word more easily than it says much."""
    user: float = 0.5
    """What people say of themselves and want is what is asked about later; an assistant's turns say it again."""
    opening: float = 1.4
    """A session opens with what it is about."""


SPACED = Weights()
UNSPACED = Weights(lexical=0.4, length=0.3, opening=0.0)
"""Of questions in scripts without spaces: their terms are characters and pairs, which say less than words."""
UNSPACED_SCRIPTS = ("han", "kana", "thai")
OPENING_TURNS = 8
"""From this turn index on a session's turns are alike: the deep of a long run of tools is no worse than its middle."""
SAME = 10.0
"""More than the other terms can differ by."""


def weights_for(question: str) -> Weights:
    """The weights of the question's language."""
    shares = script_weights(question)
    unspaced = sum(shares.get(script, 0.0) for script in UNSPACED_SCRIPTS)
    return UNSPACED if unspaced > FOREIGN_SHARE * sum(shares.values()) else SPACED


@dataclass(frozen=True)
class Features:
    """What is known of the candidate turns of one question: one entry a turn, in order of turn key."""

    turns: Sequence[str]
    """Turn keys."""
    best: Sequence[str]
    """The vector id of each turn's best chunk."""
    cosine: Scores | None
    """None when the dense leg stayed out."""
    bm25: Scores
    chars: NDArray[np.int64]
    """Length of the whole turn in characters."""
    previous: NDArray[np.int64]
    """Position of the turn before that this one leans on; -1 where there is none among the candidates."""
    following: NDArray[np.int64]
    """The same of the turn after."""
    same: NDArray[np.bool_]
    """Whether the turn is the question, but for case, width and white space."""
    on_day: NDArray[np.bool_]
    """Whether the turn was said on a day that the question names."""
    user: NDArray[np.bool_]
    """Whether the turn is a user's."""
    index: NDArray[np.int64]
    """The turn's index in its session."""


@dataclass(frozen=True)
class Part:
    """What one scoring contributed, for `--explain`."""

    raw: float | None
    """None when the scoring did not know the candidate."""
    scaled: float
    """Before its weight."""
    rank: int | None = None
    """By this scoring alone, 1 is the best; None where it is no ranking of its own."""


@dataclass(frozen=True)
class Ranked:
    """A turn in the ranking."""

    turn: str
    """Turn key."""
    id: str
    """The vector id of its best chunk."""
    score: float
    """0 to 1, comparable within one recall only."""
    parts: Mapping[str, Part]


def first_stage(features: Features, weights: Weights = SPACED, best: int | None = None) -> list[Ranked]:
    """The `best` of the candidate turns, all of them for None; best first, ties by turn key."""
    if not features.turns:
        return []
    legs: dict[str, tuple[Scores, float]] = {} if features.cosine is None else {"dense": (features.cosine, 1.0)}
    legs["lexical"] = (features.bm25, weights.lexical)
    legs["length"] = (np.log(np.clip(features.chars, 1, LEAN_CHARS)), weights.length)
    scaled = {name: standard(raw) for name, (raw, _) in legs.items()}
    ranks = {name: _ranks(raw, features.turns) for name, (raw, _) in legs.items() if name != "length"}
    own = unit(sum((weight * scaled[name] for name, (_, weight) in legs.items()), np.zeros(len(features.turns))))
    around = {"previous": (features.previous, weights.previous), "following": (features.following, weights.following)}
    score = own.copy()
    for where, weight in around.values():
        score += weight * np.where(where >= 0, own[where], 0.0)
    score = unit(score + weights.day * features.on_day + features.same)
    held: dict[str, NDArray[Any]] = {
        "same": features.same,
        "day": features.on_day,
        "user": features.user,
        "opening": 1 - np.log1p(np.clip(features.index, 0, OPENING_TURNS)) / math.log1p(OPENING_TURNS),
    }
    found = []
    for at in _best_first(score, features.turns)[:best]:
        parts = {
            name: Part(float(legs[name][0][at]), float(values[at]), ranks[name][at] if name in ranks else None)
            for name, values in scaled.items()
        }
        for name, (where, _) in around.items():
            if where[at] >= 0:
                parts[name] = Part(float(own[where[at]]), float(own[where[at]]))
        for name, holds in held.items():
            if holds[at]:
                parts[name] = Part(float(holds[at]), float(holds[at]))
        found.append(Ranked(features.turns[at], features.best[at], float(score[at]), parts))
    return found


def settle(
    first: Sequence[Ranked], reranked: Sequence[float | None] | None = None, weights: Weights = SPACED
) -> list[Ranked]:
    """The final order of the first stage's best, which are given best first. None: without a reranker, and of a score:
    not reached in time.

    Those it reached are ordered by the sum that this file begins with, over the reached; those it did not follow them
    in first-stage order, since nothing it has not read may pass what it has. When it reached none, all are ordered by
    what else the sum holds. Raises ValueError for lengths that differ and for a score that is not finite.
    """
    scores = [None] * len(first) if reranked is None else reranked
    if len(first) != len(scores):
        raise ValueError(f"{len(first)} candidates, {len(scores)} reranked scores")
    reached = [(one, score) for one, score in zip(first, scores, strict=True) if score is not None]
    if not reached:
        return _in_order(first, _first_scores(first) + _beside(first, weights) / (1 + weights.rerank))
    raw = np.array([score for _, score in reached], float)
    if not np.isfinite(raw).all():
        raise ValueError(f"a reranker's score is {raw[~np.isfinite(raw)][0]}, which cannot be ranked")
    read = [one for one, _ in reached]
    scaled, ranks = standard(raw), _ranks(raw, [one.turn for one in read])
    mixed = _first_scores(read) + weights.rerank * scaled + _beside(read, weights)
    read = [
        replace(one, parts={**one.parts, "rerank": Part(float(raw[at]), float(scaled[at]), ranks[at])})
        for at, one in enumerate(read)
    ]
    rest = [one for one, score in zip(first, scores, strict=True) if score is None]
    lowest = 0.5 if rest else 0.0  # where the reached end, so that those below have room
    return _in_order(read, mixed, lowest) + [replace(one, score=lowest * one.score) for one in rest]


def _beside(first: Sequence[Ranked], weights: Weights) -> Scores:
    """What the final sum holds beside the scores of first stage and reranker."""
    lengths = [one.parts["length"].raw for one in first if "length" in one.parts]
    summed = np.zeros(len(first))
    if len(lengths) == len(first):
        summed = weights.final_length * standard(np.array(lengths, float))
    for name, weight in (("user", weights.user), ("opening", weights.opening), ("same", SAME)):
        summed = summed + weight * np.array([one.parts[name].scaled if name in one.parts else 0.0 for one in first])
    return summed


def _first_scores(first: Sequence[Ranked]) -> Scores:
    return standard(np.array([one.score for one in first]))


def _in_order(first: Sequence[Ranked], summed: Scores, lowest: float = 0.0) -> list[Ranked]:
    """By their sums, put on `lowest` to 1, with each one's place and score in the first stage among its parts."""
    scaled = _first_scores(first)
    fused = [Part(one.score, float(scaled[at]), at + 1) for at, one in enumerate(first)]
    spread = unit(summed)
    scores = lowest + (1 - lowest) * (spread if spread.any() else np.ones(len(first)))
    return [
        replace(first[at], score=float(scores[at]), parts={**first[at].parts, "fusion": fused[at]})
        for at in _best_first(summed, [one.turn for one in first])
    ]


def standard(scores: Scores) -> Scores:
    """(score - mean) / deviation; all 0 when they do not differ."""
    deviation = float(scores.std()) if len(scores) else 0.0
    largest = float(np.abs(scores).max(initial=0.0))
    if deviation <= 1e-9 * max(1.0, largest):  # what is left of equal scores after rounding says nothing
        return np.zeros(len(scores))
    scaled: Scores = (scores - scores.mean()) / deviation
    return scaled


def unit(scores: Scores) -> Scores:
    """(score - lowest) / (highest - lowest); all 0 when they do not differ."""
    low, high = (float(scores.min()), float(scores.max())) if len(scores) else (0.0, 0.0)
    return (scores - low) / (high - low) if math.isfinite(high - low) and high > low else np.zeros(len(scores))


def _best_first(scores: Scores, names: Sequence[str]) -> list[int]:
    return sorted(range(len(names)), key=lambda at: (-scores[at], names[at]))


def _ranks(scores: Scores, names: Sequence[str]) -> list[int]:
    """1 for the best."""
    ranks = [0] * len(names)
    for rank, at in enumerate(_best_first(scores, names), 1):
        ranks[at] = rank
    return ranks
