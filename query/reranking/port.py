"""The reranker port. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Reranked:
    """Scores of the candidates that were reached in time.

    `scores[i]` belongs to `texts[i]`; None means "not reached before the deadline".
    Higher is better; the scale is the reranker's own.
    """

    scores: list[float | None]


class Reranker(Protocol):
    """Scores (query, text) pairs."""

    name: str
    scripts: frozenset[str] | None
    """Writing systems the model was trained on, by `producers.scripts` name; None means all of them."""

    def rerank(self, query: str, texts: Sequence[str], *, deadline: float | None = None) -> Reranked:
        """Score `texts`, given best first, until `deadline` (a `time.monotonic()` value; None: no limit)."""
        ...
