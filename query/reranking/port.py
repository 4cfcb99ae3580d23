"""The reranker port. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Passage:
    """A candidate to be read, with what stands around it in its conversation."""

    text: str
    before: int | None = None
    """Position, among the passages of the same call, of the turn before that this one leans on. A reranker may read it
    too; what is not itself a candidate is never read, so that neighbours cost nothing and no cache decides."""
    after: int | None = None
    """The same of the turn after."""


@dataclass(frozen=True)
class Reranked:
    """Scores of the candidates that were reached in time.

    `scores[i]` belongs to `passages[i]`; None means "not reached before the deadline".
    Higher is better; the scale is the reranker's own.
    """

    scores: list[float | None]


class Reranker(Protocol):
    """Scores (query, passage) pairs."""

    name: str
    scripts: frozenset[str] | None
    """Writing systems the model was trained on, by `producers.scripts` name; None means all of them."""

    def rerank(self, query: str, passages: Sequence[Passage], *, deadline: float | None = None) -> Reranked:
        """Score `passages`, given best first, until `deadline` (a `time.monotonic()` value; None: no limit)."""
        ...
