"""Confidence: by the reranker where it read the turn, else by the embedder, else not at all."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from query.confidence import BY_EMBEDDER, BY_RERANKER, Calibration, confidence
from query.ranking import Part, Ranked

MINILM = "all-MiniLM-L6-v2"


def hit(rerank: float | None = None, dense: float | None = None) -> Ranked:
    parts = {"dense": dense, "rerank": rerank}
    return Ranked("t", "t#0", 0.5, {name: Part(raw, 0.0) for name, raw in parts.items() if raw is not None})


def test_what_the_reranker_read_counts_before_the_cosine() -> None:
    both = hit(rerank=0.6, dense=0.1)
    assert confidence(both, "late-interaction", MINILM) == BY_RERANKER["late-interaction"].of(0.6)
    assert confidence(hit(dense=0.4), "late-interaction", MINILM) == BY_EMBEDDER[MINILM].of(0.4)
    assert confidence(hit(rerank=0.0), "BAAI/bge-reranker-v2-m3", MINILM) == 0.5


def test_models_that_are_not_calibrated_say_nothing() -> None:
    assert confidence(hit(dense=0.9), None, "some/model") is None
    assert confidence(hit(rerank=0.9, dense=0.9), "http", MINILM) is None
    assert confidence(hit(), None, MINILM) is None


@given(st.floats(-1e6, 1e6), st.floats(-1e6, 1e6))
def test_a_higher_score_is_never_less_sure(low: float, high: float) -> None:
    calibration = Calibration(-5.0, 8.0)
    sure = [calibration.of(score) for score in sorted((low, high))]
    assert 0 <= sure[0] <= sure[1] <= 1


@pytest.mark.parametrize("calibration", [*BY_RERANKER.values(), *BY_EMBEDDER.values()])
def test_every_calibration_spans_the_range_of_a_cosine(calibration: Calibration) -> None:
    assert calibration.of(-0.2) < 0.05
    assert calibration.of(1.0) > 0.5
