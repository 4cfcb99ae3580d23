"""Whether recall is silent where nothing answers: how precise the first hits are, with questions that have no answer
counted in. Pure.

What `min_score` is chosen by: a higher one makes recall more precise and lets it find less.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from query.evaluation.labelled import LabelledQuestion
from query.evaluation.metrics import TurnRef

FIRST = 5
"""Hits looked at, as many as recall returns unless asked for more."""


@dataclass(frozen=True)
class Silence:
    """Of one setting's answers."""

    precision: float | None
    """Share of evidence among the first hits of all answers together; None when there is no hit."""
    unanswerable: int
    """Questions without evidence."""
    silent: int
    """Of those, how many got no hit."""
    hits: float
    """First hits that those got on average, 0 to `FIRST`."""

    def as_dict(self) -> dict[str, float | None]:
        precision = None if self.precision is None else round(self.precision, 4)
        without = {"n": self.unanswerable, "silent": self.silent, f"hits@{FIRST}": round(self.hits, 4)}
        return {f"precision@{FIRST}": precision, **{f"without_evidence_{name}": one for name, one in without.items()}}

    def __str__(self) -> str:
        precision = (
            "no hit" if self.precision is None else f"{self.precision:.0%} of the first {FIRST} hits are evidence"
        )
        if not self.unanswerable:
            return precision
        return (
            f"{precision}; without evidence: {self.unanswerable} questions, {self.silent} of them without a hit, "
            f"{self.hits:.1f} hits on average"
        )


def silence(questions: Sequence[LabelledQuestion], ranked: Mapping[str, Sequence[TurnRef]]) -> Silence:
    """`ranked` holds each question's turns, best first, by query id."""
    first = {one.judged.query_id: list(dict.fromkeys(ranked.get(one.judged.query_id, ())))[:FIRST] for one in questions}
    hits = sum(map(len, first.values()))
    evidence = sum(len(one.judged.evidence.intersection(first[one.judged.query_id])) for one in questions)
    without = [len(first[one.judged.query_id]) for one in questions if not one.scored]
    return Silence(
        precision=evidence / hits if hits else None,
        unanswerable=len(without),
        silent=without.count(0),
        hits=sum(without) / len(without) if without else 0.0,
    )
