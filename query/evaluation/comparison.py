"""Settings side by side: their metrics by group of questions, and each one's gain over the first. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from producers.scripts import script_weights
from query.evaluation.intervals import Gain, Interval, Values, gains, intervals
from query.evaluation.labelled import LabelledQuestion
from query.evaluation.metrics import Metrics, TurnRef, mean_of, score_question

COMPARED = ("R@1", "R@5", "R@10", "R@50", "MRR")
"""Metrics with an interval."""
ALL = "all"
NO_LETTERS = "none"


@dataclass(frozen=True)
class Group:
    """Questions that are reported together."""

    kind: str
    """all, category or language."""
    name: str
    positions: tuple[int, ...]
    """Among the questions with evidence."""

    @property
    def title(self) -> str:
        return self.name if self.kind == ALL else f"{self.kind} {self.name}"


@dataclass(frozen=True)
class Row:
    """One setting on one group of questions."""

    group: Group
    setting: str
    metrics: Metrics
    intervals: Mapping[str, Interval]
    """By metric."""
    gains: Mapping[str, Gain]
    """By metric; empty for the first setting."""

    def as_dict(self) -> dict[str, Any]:
        found: dict[str, Any] = {
            "metrics": self.metrics.as_dict(),
            "intervals": {name: one.as_dict() for name, one in self.intervals.items()},
        }
        if self.gains:
            found["gains"] = {name: one.as_dict() for name, one in self.gains.items()}
        return found


def language_of(text: str) -> str:
    """The script that most of the question is in, by `producers.scripts` name: what can be told of its language."""
    weights = script_weights(text)
    return min(weights, key=lambda name: (-weights[name], name)) if weights else NO_LETTERS


def groups_of(questions: Sequence[LabelledQuestion]) -> list[Group]:
    """All questions, then those of each category and of each language."""
    found: dict[tuple[str, str], list[int]] = {}
    for position, question in enumerate(questions):
        if question.judged.category is not None:
            found.setdefault(("category", question.judged.category), []).append(position)
        found.setdefault(("language", language_of(question.query)), []).append(position)
    whole = [Group(ALL, ALL, tuple(range(len(questions))))]
    return whole + [Group(kind, name, tuple(positions)) for (kind, name), positions in sorted(found.items())]


def score(questions: Sequence[LabelledQuestion], ranked: Mapping[str, Sequence[TurnRef]]) -> list[Metrics]:
    """Each question's metrics; all have evidence, and one that is not in `ranked` scores 0."""
    return [score_question(one.judged.evidence, ranked.get(one.judged.query_id, ())) for one in questions]


def compare(questions: Sequence[LabelledQuestion], scored: Mapping[str, Sequence[Metrics]]) -> list[Row]:
    """Every group by every setting, in the order given; the first one is what the others are held against.

    `questions` are those with evidence, and each setting has one entry a question. Empty without questions.
    """
    if not questions:
        return []
    columns = {name: _columns(rows) for name, rows in scored.items()}
    first = next(iter(columns))
    found = []
    for group in groups_of(questions):
        at = np.array(group.positions)
        for name, rows in scored.items():
            mine, base = columns[name][at], columns[first][at]
            found.append(
                Row(
                    group=group,
                    setting=name,
                    metrics=mean_of([rows[position] for position in group.positions]),
                    intervals=dict(zip(COMPARED, intervals(mine), strict=True)),
                    gains={} if name == first else dict(zip(COMPARED, gains(mine, base), strict=True)),
                )
            )
    return found


def telling(rows: Sequence[Row]) -> list[Row]:
    """Without a category or language that all questions are in: it says what `all` says."""
    everything = max((row.metrics.questions for row in rows), default=0)
    return [row for row in rows if row.group.kind == ALL or row.metrics.questions < everything]


def _columns(rows: Sequence[Metrics]) -> Values:
    """Shape (questions, compared metrics)."""
    figures = [row.figures() for row in rows]
    return np.array([[one[name] for name in COMPARED] for one in figures], np.float64)
