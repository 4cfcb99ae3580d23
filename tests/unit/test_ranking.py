"""Ranking: hand-computed cases, and what must hold for any scores."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from query.ranking import SPACED, UNSPACED, Features, Ranked, Weights, first_stage, settle, standard, unit, weights_for

EIGHTHS = st.integers(-8000, 8000).map(lambda value: value / 8)


def features(
    cosine: Sequence[float] | None,
    bm25: Sequence[float] | None = None,
    chars: Sequence[int] | None = None,
    previous: dict[int, int] | None = None,
    following: dict[int, int] | None = None,
    same: int | None = None,
    user: Sequence[bool] | None = None,
    index: Sequence[int] | None = None,
    on_day: Sequence[bool] | None = None,
) -> Features:
    """Turns t0, t1, …"""
    count = len(cosine if cosine is not None else bm25 or [])
    before, after = np.full(count, -1), np.full(count, -1)
    for leaning, on in (previous or {}).items():
        before[leaning] = on
    for leaning, on in (following or {}).items():
        after[leaning] = on
    return Features(
        turns=[f"t{number}" for number in range(count)],
        best=[f"t{number}#0" for number in range(count)],
        cosine=None if cosine is None else np.array(cosine, float),
        bm25=np.array(bm25 if bm25 is not None else [0.0] * count, float),
        chars=np.array(chars if chars is not None else [100] * count),
        previous=before,
        following=after,
        same=np.arange(count) == (-1 if same is None else same),
        on_day=np.array(on_day if on_day is not None else [False] * count, np.bool_),
        user=np.array(user if user is not None else [False] * count, np.bool_),
        index=np.array(index if index is not None else [0] * count),
    )


def order(hits: Sequence[Ranked]) -> list[str]:
    return [found.turn for found in hits]


def scores(hits: Sequence[Ranked]) -> dict[str, float]:
    return {found.turn: found.score for found in hits}


def hit(turn: str, score: float) -> Ranked:
    return Ranked(turn, f"{turn}#0", score, {})


def test_a_turn_that_is_the_question_stands_before_its_like_whatever_stands_around_them() -> None:
    cosine = [1.0, 0.98, 0.99, 0.97, 0.2]
    around = {2: 0, 3: 2}
    assert order(first_stage(features(cosine, previous=around, same=None)))[0] == "t2"
    found = first_stage(features(cosine, previous=around, same=0))
    assert order(found)[0] == "t0"
    assert found[0].parts["same"].scaled == 1.0
    assert all("same" not in one.parts for one in found[1:])


def test_a_turn_of_a_named_day_gains_and_one_that_fits_much_better_can_still_pass_it() -> None:
    cosine = [1.0, 0.6, 0.65, 0.0]
    assert order(first_stage(features(cosine))) == ["t0", "t2", "t1", "t3"]
    found = first_stage(features(cosine, on_day=[False, True, False, True]))
    assert order(found) == ["t1", "t0", "t3", "t2"]
    assert ["day" in one.parts for one in found] == [True, False, True, False]


def test_only_as_many_as_are_asked_for_are_worked_out() -> None:
    whole = first_stage(features([0.9, 0.5, 0.1], [0.0, 12.0, 3.0]))
    assert first_stage(features([0.9, 0.5, 0.1], [0.0, 12.0, 3.0]), best=2) == whole[:2]


def test_the_score_is_the_sum_of_the_standard_scores_on_0_to_1() -> None:
    found = first_stage(features([0.9, 0.5, 0.1], [0.0, 12.0, 3.0]), Weights(0.5, 0.0, 0.0, 0.0))
    dense = np.array([0.4, 0.0, -0.4]) / np.sqrt(0.32 / 3)
    lexical = np.array([-5.0, 7.0, -2.0]) / np.sqrt((25 + 49 + 4) / 3)
    summed = dense + 0.5 * lexical
    wanted = (summed - summed.min()) / (summed.max() - summed.min())
    assert scores(found) == pytest.approx({f"t{at}": wanted[at] for at in range(3)})
    parts = {one.turn: one.parts for one in found}["t1"]
    assert (parts["dense"].raw, parts["lexical"].raw) == (0.5, 12.0)
    assert parts["lexical"].scaled == pytest.approx(lexical[1])


def test_without_the_dense_leg_the_others_rank() -> None:
    found = first_stage(features(None, [1.0, 3.0, 2.0]))
    assert order(found) == ["t1", "t2", "t0"]
    assert "dense" not in found[0].parts


def test_a_constant_leg_changes_no_order_whatever_it_weighs() -> None:
    assert order(first_stage(features([0.1, 0.5, 0.3], [7.1, 7.1, 7.1]), Weights(lexical=50.0))) == ["t1", "t2", "t0"]


def test_ties_are_broken_by_turn_and_one_or_no_candidate_is_a_ranking() -> None:
    assert order(first_stage(features([0.3, 0.3, 0.3]))) == ["t0", "t1", "t2"]
    assert order(first_stage(features([0.3]))) == ["t0"]
    assert first_stage(features([])) == []


def test_a_longer_turn_says_more_up_to_a_bound() -> None:
    found = first_stage(features([0.0, 0.0, 0.0], chars=[600, 60_000, 6]), Weights(length=1.0))
    assert order(found) == ["t0", "t1", "t2"]
    assert found[0].score == found[1].score


def test_a_turn_inherits_from_the_turns_around_it() -> None:
    weights = Weights(0.0, 0.0, previous=0.5, following=0.25)
    found = first_stage(features([1.0, 0.0, 0.5], previous={1: 0}, following={2: 1}), weights)
    assert scores(found) == pytest.approx({"t0": 1.0, "t1": 0.0, "t2": 0.0})  # 1, 0 + .5, .5 + .25 · 0 on 0 to 1
    parts = {one.turn: one.parts for one in found}
    assert parts["t1"]["previous"].raw == 1.0
    assert parts["t2"]["following"].raw == 0.0
    assert "previous" not in parts["t0"]


@given(st.lists(EIGHTHS, max_size=8), st.data())
def test_every_candidate_is_ranked_once_with_a_score_from_0_to_1(cosine: list[float], data: st.DataObject) -> None:
    size = len(cosine)
    bm25 = data.draw(st.lists(EIGHTHS.map(abs), min_size=size, max_size=size))
    chars = data.draw(st.lists(st.integers(0, 5000), min_size=size, max_size=size))
    ids = st.integers(0, max(0, size - 1))
    previous = data.draw(st.dictionaries(ids, ids, max_size=size)) if size else {}
    found = first_stage(features(cosine, bm25, chars, previous))
    assert sorted(order(found)) == sorted(f"t{number}" for number in range(size))
    assert all(0 <= one.score <= 1 for one in found)
    assert found == sorted(found, key=lambda one: (-one.score, one.turn))


@given(st.lists(EIGHTHS, min_size=1, max_size=8), st.sampled_from([0.25, 2.0, 1024.0]), EIGHTHS)
def test_a_legs_scale_and_origin_do_not_matter(cosine: list[float], factor: float, shift: float) -> None:
    moved = first_stage(features([value * factor + shift for value in cosine], list(range(len(cosine)))))
    assert scores(moved) == pytest.approx(scores(first_stage(features(cosine, list(range(len(cosine)))))), abs=1e-6)


def test_a_blend_is_the_sum_of_both_standard_scores() -> None:
    mixed = settle([hit("a", 0.9), hit("b", 0.7), hit("c", 0.5)], [-2.0, 6.0, 2.0], Weights(rerank=3.0))
    summed = standard(np.array([0.9, 0.7, 0.5])) + 3 * standard(np.array([-2.0, 6.0, 2.0]))
    assert order(mixed) == ["b", "c", "a"]
    assert scores(mixed) == pytest.approx(dict(zip("abc", unit(summed), strict=True)))
    assert mixed[0].parts["rerank"].raw == 6.0
    assert (mixed[0].parts["fusion"].raw, mixed[0].parts["fusion"].rank) == (0.7, 2)


def test_the_unreached_follow_the_reached_in_first_stage_order() -> None:
    first = [hit("a", 0.9), hit("b", 0.8), hit("c", 0.7), hit("d", 0.6), hit("e", 0.5)]
    mixed = settle(first, [1.0, 5.0, None, None, None], Weights(rerank=4.0))
    assert order(mixed) == ["b", "a", "c", "d", "e"]
    assert [found.score for found in mixed] == sorted((found.score for found in mixed), reverse=True)
    assert "rerank" not in mixed[2].parts


def test_without_a_reranker_and_when_it_reached_none_the_rest_of_the_sum_ranks() -> None:
    first = first_stage(features([0.9, 0.8, 0.1], user=[False, True, False]))
    assert order(first) == ["t0", "t1", "t2"]
    assert order(settle(first, None, Weights(user=9.0))) == ["t1", "t0", "t2"]
    assert settle(first, [None, None, None], Weights(user=9.0)) == settle(first, None, Weights(user=9.0))
    assert order(settle(first, None, Weights(user=0.0))) == ["t0", "t1", "t2"]
    assert settle([], []) == settle([], None) == []


def test_a_reranker_that_scores_all_alike_leaves_the_order() -> None:
    first = [hit("b", 0.9), hit("a", 0.8), hit("c", 0.8)]
    assert order(settle(first, [0.1, 0.1, 0.1], Weights(rerank=9.0))) == ["b", "a", "c"]


def test_a_blend_refuses_scores_that_cannot_be_ranked() -> None:
    with pytest.raises(ValueError, match="2 candidates, 1 reranked"):
        settle([hit("a", 0.9), hit("b", 0.8)], [1.0])
    with pytest.raises(ValueError, match="a reranker's score is nan"):
        settle([hit("a", 0.9)], [math.nan])


@given(st.lists(EIGHTHS, min_size=1, max_size=8, unique=True), st.data())
def test_a_blend_keeps_every_candidate_and_what_was_read_stays_ahead(values: list[float], data: st.DataObject) -> None:
    first = [hit(f"c{number}", float(score)) for number, score in enumerate(unit(np.sort(values)[::-1]))]
    scored = data.draw(st.lists(st.none() | EIGHTHS, min_size=len(first), max_size=len(first)))
    reached = {found.turn for found, score in zip(first, scored, strict=True) if score is not None}
    mixed = settle(first, scored)
    assert {found.turn for found in mixed[: len(reached)]} == reached
    assert sorted(order(mixed)) == sorted(order(first))
    unread = [found.turn for found in first if found.turn not in reached]
    assert [turn for turn in order(mixed) if turn not in reached] == unread
    assert [found.score for found in mixed] == sorted((found.score for found in mixed), reverse=True)


@pytest.mark.parametrize(
    ("question", "weights"),
    [
        ("which port?", SPACED),
        ("端口是多少", UNSPACED),
        ("nginx 的端口是多少", UNSPACED),
        ("what does 端口 mean in the config file", SPACED),
        ("", SPACED),
    ],
)
def test_the_weights_are_those_of_the_questions_language(question: str, weights: Weights) -> None:
    assert weights_for(question) == weights


def test_of_turns_that_a_reranker_likes_alike_the_one_that_says_more_comes_first() -> None:
    first = first_stage(features([0.5, 0.5], chars=[20, 500]), Weights(length=0.0))
    assert order(first) == ["t0", "t1"]
    assert order(settle(first, [0.3, 0.3], Weights(final_length=0.2))) == ["t1", "t0"]
    assert order(settle(first, [0.3, 0.3], Weights(final_length=0.0))) == ["t0", "t1"]


def test_a_users_turn_stands_before_its_like_and_so_does_a_sessions_opening() -> None:
    spoken = first_stage(features([0.5, 0.5, 0.5], user=[False, False, True]))
    assert order(spoken) == ["t0", "t1", "t2"], "which is for the final order alone"
    assert order(settle(spoken, [0.3, 0.3, 0.3])) == ["t2", "t0", "t1"]
    assert [("user" in one.parts) for one in settle(spoken, [0.3, 0.3, 0.3])] == [True, False, False]
    opened = first_stage(features([0.5] * 4, index=[700, 3, 0, 9]))
    assert order(settle(opened, [0.3] * 4)) == ["t2", "t1", "t0", "t3"], "from the eighth on all are alike"
    assert order(settle(opened, [0.3] * 4, UNSPACED)) == ["t0", "t1", "t2", "t3"]


@given(st.lists(EIGHTHS, min_size=3, max_size=50), st.lists(EIGHTHS, min_size=50, max_size=50), st.booleans())
def test_the_question_itself_stays_first_whoever_said_it_wherever(
    cosine: list[float], reranked: list[float], reads: bool
) -> None:
    """As long as the reranker, whose score of it is the highest there is, is not blind."""
    size = len(cosine)
    found = first_stage(features(cosine, same=0, user=[at > 0 for at in range(size)], index=[500, *range(size - 1)]))
    assert order(found)[0] == "t0"
    scores = [9000.0 if one.turn == "t0" else reranked[at] for at, one in enumerate(found)]
    assert order(settle(found, scores if reads else None))[0] == "t0"
