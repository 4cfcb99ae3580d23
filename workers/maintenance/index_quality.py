"""How well a vector index finds: its recall@50 against an exact scan, and the search that reaches a floor. Does I/O.

Stored vectors are the questions, each within its tenant, as recall asks. An answer counts when it is as near as the
exact fiftieth, so that texts that are stored twice cost nothing.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from producers.events import utc_microseconds
from workers.stores.index_search import DEFAULT_SEARCH, REFINE, IndexSearch
from workers.stores.lance_indexes import IndexKind
from workers.stores.lance_schema import VECTOR
from workers.stores.scope import Scope
from workers.stores.space import Space
from workers.stores.vectors import Sample, VectorStore

QUESTIONS = 50
NEAREST = 50
SEED = 7
"""The same rows are asked for again as long as the table has not changed."""
ROUNDING = 1e-5
"""Two ways to compute one cosine in float32 differ by less."""
STEPS: dict[IndexKind, tuple[IndexSearch, ...]] = {
    "hnsw": (
        IndexSearch(),
        IndexSearch(ef=600),
        IndexSearch(refine=REFINE * 2, ef=1200),
        IndexSearch(refine=REFINE * 4, ef=2400, nprobes=64),
    ),
    "pq": (
        IndexSearch(refine=10),
        IndexSearch(refine=10, nprobes=40),
        IndexSearch(refine=20, nprobes=80),
        IndexSearch(refine=40, nprobes=160),
    ),
}
"""Searches of each kind of index, each more thorough and slower than the one before it."""


@dataclass(frozen=True)
class Quality:
    """What a search of the index came to on the questions."""

    search: IndexSearch
    recall: float
    """Of the exact 50 nearest, the share that it found."""
    index_ms: float
    """Median of one search."""
    exact_ms: float
    """Median of one exact scan."""


class QualityCheck:
    """Questions, and their exact answers, which are computed once."""

    def __init__(self, store: VectorStore, space: Space) -> None:
        self._store = store
        self._space = space
        self._questions = store.sample(space, QUESTIONS, SEED)
        self._exact: list[list[float]] = []
        self._exact_ms: list[float] = []
        for question in self._questions:
            started = time.perf_counter()
            self._exact.append(self._scores(question, None))
            self._exact_ms.append(1000 * (time.perf_counter() - started))

    def measure(self, search: IndexSearch) -> Quality:
        """The index as this search asks it; an empty table answers perfectly."""
        found: list[float] = []
        took: list[float] = []
        for question, exact in zip(self._questions, self._exact, strict=True):
            started = time.perf_counter()
            scores = self._scores(question, search)
            took.append(1000 * (time.perf_counter() - started))
            found.append(share_found(scores, exact))
        return Quality(
            search,
            recall=round(statistics.fmean(found), 4) if found else 1.0,
            index_ms=round(statistics.median(took or [0.0]), 1),
            exact_ms=round(statistics.median(self._exact_ms or [0.0]), 1),
        )

    def first_good(self, kind: IndexKind, floor: float) -> Quality:
        """The least thorough search that reaches the floor, or the best of all when none does."""
        best: Quality | None = None
        for step in STEPS[kind]:
            quality = self.measure(step)
            if best is None or quality.recall > best.recall:
                best = quality
            if quality.recall >= floor:
                return quality
        assert best is not None
        return best

    def _scores(self, question: Sample, search: IndexSearch | None) -> list[float]:
        scope = Scope(question.tenant)
        how, exact = (DEFAULT_SEARCH, True) if search is None else (search, False)
        found = self._store.dense(self._space, question.vector, scope, NEAREST, how, exact=exact)
        return [candidate.score for candidate in found]


def share_found(scores: Sequence[float], exact: Sequence[float]) -> float:
    """Recall: how many of the answers are as near as the last of the exact ones. Pure."""
    if not exact:
        return 1.0
    return min(1.0, sum(score >= exact[-1] - ROUNDING for score in scores) / len(exact))


def keep_quality(
    store: VectorStore, space: Space, kind: IndexKind, search: IndexSearch, floor: float
) -> tuple[IndexSearch, dict[str, float], list[str]]:
    """(how the index is to be asked, what was measured, what was done about it, for people).

    Below the floor it is asked more thoroughly, then built anew with more care; what it then reaches must do.
    """
    check = QualityCheck(store, space)
    quality, said, fine, trained = check.first_good(kind, floor), [], search.fine, search.trained_rows
    if quality.recall < floor and not fine:
        store.build_index(space, VECTOR, kind, fine=True)
        said.append(f"recall@{NEAREST} was {quality.recall:.3f}: built the vectors' index anew, finer")
        quality, fine, trained = check.first_good(kind, floor), True, store.statistics(space).rows
    said.append(f"recall@{NEAREST} {quality.recall:.3f} with {shown(quality.search)}")
    if quality.recall < floor:
        said.append(f"that is below index_recall_floor {floor}, and no search of this index reaches it")
    found = replace(
        quality.search,
        fine=fine,
        trained_rows=trained,
        checked_rows=store.statistics(space).rows,
        checked_at_us=utc_microseconds(datetime.now(UTC)),  # after a build that it was measured on
        recall=quality.recall,
    )
    return found, {"index_ms": quality.index_ms, "exact_ms": quality.exact_ms}, said


def shown(search: IndexSearch) -> str:
    """The parameters of a search, for people. Pure."""
    asked = {"refine": search.refine, "ef": search.ef, "nprobes": search.nprobes}
    return ", ".join(f"{name} {value}" for name, value in asked.items() if value is not None)
