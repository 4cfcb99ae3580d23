"""Recall metrics over ranked turns, by question and by category. Pure.

The definitions are those of the labelled sets' scorer, so that a figure printed by `scope-recall eval` and one computed
from its results file agree to the last digit. A turn counts once, at its best rank, however many of its chunks are
returned; a question without evidence is left out of every mean; one without an answer scores 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

CUTOFFS = (1, 5, 10, 50)
"""Ranks the metrics look at: the first hit, a context block's worth, two of them, and the wide pass."""

TurnRef = tuple[str, int]
"""(session_id, turn_index)."""


@dataclass(frozen=True)
class Judged:
    """A question and the turns that answer it; `category` groups questions in the report."""

    query_id: str
    evidence: frozenset[TurnRef]
    category: str | None = None


@dataclass(frozen=True)
class Metrics:
    """Means over `questions`, each in 0 to 1; the mappings are keyed by cut-off rank k."""

    questions: int
    recall: Mapping[int, float]
    """R@k: fraction of a question's evidence turns among its first k turns."""
    any_found: Mapping[int, float]
    """any@k: share of questions with at least one evidence turn among the first k."""
    all_found: Mapping[int, float]
    """all@k: share of questions with every evidence turn among the first k."""
    session_found: Mapping[int, float]
    """S@k: share of questions with an evidence session among the first k distinct sessions."""
    mrr: float
    """Mean of 1 / rank of the first evidence turn, 0 when there is none (Voorhees, TREC-8 QA track, 1999)."""

    def figures(self) -> dict[str, float]:
        """By the scorer's names: `R@5`, `any@5`, …, `MRR`."""
        flat: dict[str, float] = {}
        named = (("R", self.recall), ("any", self.any_found), ("all", self.all_found), ("S", self.session_found))
        for k in CUTOFFS:
            flat.update({f"{name}@{k}": values[k] for name, values in named})
        return {**flat, "MRR": self.mrr}

    def as_dict(self) -> dict[str, float]:
        """The scorer's flat form: `n`, then the figures rounded to 4 digits."""
        return {"n": self.questions, **{name: round(value, 4) for name, value in self.figures().items()}}


@dataclass(frozen=True)
class Evaluation:
    """Metrics of a set; `overall` is None when no question has evidence."""

    overall: Metrics | None
    categories: Mapping[str, Metrics]
    unanswered: int
    """Questions with evidence that had no line of results."""


def score_question(evidence: frozenset[TurnRef], ranked: Iterable[TurnRef]) -> Metrics:
    """Metrics of one question; `ranked` is best first and may repeat a turn. Raises ValueError without evidence."""
    if not evidence:
        raise ValueError("a question without evidence has no score; leave it out")
    turns = list(dict.fromkeys(ranked))
    sessions = list(dict.fromkeys(session for session, _ in turns))
    wanted = {session for session, _ in evidence}
    found = {k: evidence.intersection(turns[:k]) for k in CUTOFFS}
    first = next((rank for rank, turn in enumerate(turns, 1) if turn in evidence), None)
    return Metrics(
        questions=1,
        recall={k: len(found[k]) / len(evidence) for k in CUTOFFS},
        any_found={k: float(bool(found[k])) for k in CUTOFFS},
        all_found={k: float(found[k] == evidence) for k in CUTOFFS},
        session_found={k: float(not wanted.isdisjoint(sessions[:k])) for k in CUTOFFS},
        mrr=1 / first if first else 0.0,
    )


def evaluate(questions: Iterable[Judged], results: Mapping[str, Sequence[TurnRef]]) -> Evaluation:
    """Score every question with evidence; `results` holds each question's turns, best first, by query_id."""
    everything: list[Metrics] = []
    by_category: dict[str, list[Metrics]] = {}
    unanswered = 0
    for question in questions:
        if not question.evidence:
            continue
        unanswered += question.query_id not in results
        row = score_question(question.evidence, results.get(question.query_id, ()))
        everything.append(row)
        if question.category is not None:
            by_category.setdefault(question.category, []).append(row)
    return Evaluation(
        overall=mean_of(everything) if everything else None,
        categories={name: mean_of(rows) for name, rows in sorted(by_category.items())},
        unanswered=unanswered,
    )


def mean_of(rows: Sequence[Metrics]) -> Metrics:
    """The means of at least one question's or more."""
    return Metrics(
        questions=len(rows),
        recall={k: fmean(row.recall[k] for row in rows) for k in CUTOFFS},
        any_found={k: fmean(row.any_found[k] for row in rows) for k in CUTOFFS},
        all_found={k: fmean(row.all_found[k] for row in rows) for k in CUTOFFS},
        session_found={k: fmean(row.session_found[k] for row in rows) for k in CUTOFFS},
        mrr=fmean(row.mrr for row in rows),
    )
