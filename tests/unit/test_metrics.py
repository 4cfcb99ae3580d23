"""The metrics against cases worked out by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from query.evaluation.metrics import CUTOFFS, Judged, TurnRef, evaluate, score_question

A0, A1, A2, B0, C0 = ("a", 0), ("a", 1), ("a", 2), ("b", 0), ("c", 0)
TURNS = st.tuples(st.sampled_from("abc"), st.integers(0, 4))


def fillers(count: int) -> list[TurnRef]:
    return [("filler", index) for index in range(count)]


def test_recall_is_the_fraction_of_the_evidence_within_the_cutoff() -> None:
    row = score_question(frozenset({A0, B0}), [A0, *fillers(5), B0])
    assert row.recall == {1: 0.5, 5: 0.5, 10: 1.0, 50: 1.0}
    assert row.any_found == {1: 1.0, 5: 1.0, 10: 1.0, 50: 1.0}
    assert row.all_found == {1: 0.0, 5: 0.0, 10: 1.0, 50: 1.0}
    assert row.mrr == 1.0


def test_reciprocal_rank_is_of_the_first_evidence_turn() -> None:
    assert score_question(frozenset({A0, B0}), [C0, A1, B0, A0]).mrr == pytest.approx(1 / 3)


def test_reciprocal_rank_reaches_beyond_the_last_cutoff() -> None:
    row = score_question(frozenset({A0}), [*fillers(79), A0])
    assert (row.mrr, row.recall[50]) == (1 / 80, 0.0)


def test_a_turn_counts_once_at_its_best_rank() -> None:
    repeated = score_question(frozenset({B0}), [A0, A0, A0, A0, A0, B0])
    assert (repeated.recall[5], repeated.mrr) == (1.0, 0.5)
    assert score_question(frozenset({A0, B0}), [A0, A0]).recall[5] == 0.5


def test_a_session_counts_at_the_rank_of_its_first_turn_among_distinct_sessions() -> None:
    row = score_question(frozenset({B0}), [A0, A1, A2, ("b", 7)])
    assert row.session_found == {1: 0.0, 5: 1.0, 10: 1.0, 50: 1.0}
    assert row.recall[50] == 0.0


def test_nothing_returned_scores_zero() -> None:
    row = score_question(frozenset({A0}), [])
    assert row.mrr == 0.0
    assert set(row.recall.values()) == {0.0}
    assert set(row.session_found.values()) == {0.0}


def test_a_question_without_evidence_cannot_be_scored() -> None:
    with pytest.raises(ValueError, match="without evidence"):
        score_question(frozenset(), [A0])


def test_means_leave_out_questions_without_evidence_and_count_the_unanswered_as_zero() -> None:
    questions = [
        Judged("q1", frozenset({A0}), "fact"),
        Judged("q2", frozenset({A0, B0}), "cause"),
        Judged("q3", frozenset({C0}), "fact"),
        Judged("q4", frozenset(), "abstention"),
    ]
    report = evaluate(questions, {"q1": [A0], "q2": [A1, B0], "q4": [A0]})
    assert report.overall is not None
    assert report.unanswered == 1
    assert report.overall.questions == 3
    assert report.overall.recall[5] == pytest.approx((1 + 0.5 + 0) / 3)
    assert report.overall.mrr == pytest.approx((1 + 0.5 + 0) / 3)
    assert {name: row.questions for name, row in report.categories.items()} == {"cause": 1, "fact": 2}
    assert report.categories["fact"].recall[1] == 0.5


def test_a_set_without_evidence_has_no_means() -> None:
    report = evaluate([Judged("q", frozenset())], {"q": [A0]})
    assert (report.overall, report.categories, report.unanswered) == (None, {}, 0)


def test_the_flat_form_bears_the_scorers_names_and_rounding() -> None:
    report = evaluate([Judged(f"q{i}", frozenset({A0})) for i in range(3)], {"q0": [A0], "q1": [A0]})
    assert report.overall is not None
    flat = report.overall.as_dict()
    assert list(flat) == ["n", *(f"{name}@{k}" for k in CUTOFFS for name in ("R", "any", "all", "S")), "MRR"]
    assert (flat["n"], flat["R@5"], flat["MRR"]) == (3, 0.6667, 0.6667)


@given(st.frozensets(TURNS, min_size=1), st.lists(TURNS))
def test_metrics_grow_with_k_and_keep_their_order(evidence: frozenset[TurnRef], ranked: list[TurnRef]) -> None:
    row = score_question(evidence, ranked)
    for values in (row.recall, row.any_found, row.all_found, row.session_found):
        assert list(values.values()) == sorted(values.values())
    for k in CUTOFFS:
        assert 0 <= row.all_found[k] <= row.recall[k] <= row.any_found[k] <= row.session_found[k] <= 1
