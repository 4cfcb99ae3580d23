"""How old a turn is, as part of its score. Pure.

    score = (1 - weight) · relevance + weight · 0.5 ^ (age / half-life)

as in Park et al. 2023 (Generative Agents) and most memory systems since; .7 and .3 is where people start.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from statistics import median

from query.ranking import Part, Ranked

SECONDS_A_DAY = 86_400.0


@dataclass(frozen=True)
class Recency:
    """How much being recent counts. `weight` 0 to 1; `half_life` in days, after which it counts half."""

    weight: float
    half_life: float

    def of(self, said: datetime, now: datetime) -> float:
        """0 to 1; 1 for what is said now or later."""
        days = max(0.0, (now - said).total_seconds() / SECONDS_A_DAY)
        value: float = 0.5 ** (days / self.half_life)
        return value


NO_RECENCY = Recency(0.0, 30.0)


def by_recency(
    ranked: Sequence[Ranked], said: Mapping[str, datetime | None], recency: Recency, now: datetime
) -> list[Ranked]:
    """The ranking with recency counted in; `said` by turn key.

    A turn without a time gets the median of the others': its age is not known, so it neither gains nor loses.
    """
    if recency.weight == 0 or not ranked:
        return list(ranked)
    known = {one.turn: recency.of(moment, now) for one in ranked if (moment := said[one.turn]) is not None}
    usual = median(known.values()) if known else 0.0
    found = []
    for one in ranked:
        value = known.get(one.turn, usual)
        score = (1 - recency.weight) * one.score + recency.weight * value
        part = Part(value if one.turn in known else None, value)
        found.append(replace(one, score=score, parts={**one.parts, "recency": part}))
    return sorted(found, key=lambda one: (-one.score, one.turn))
