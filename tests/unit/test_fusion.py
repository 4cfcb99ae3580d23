"""Fusion: hand-computed cases, and what must hold for any scores."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from query.fusion import Fused, Leg, Part, Place, best_per_turn, blend, follow_on, fuse

FINITE = st.floats(allow_nan=False, allow_infinity=False)
EIGHTHS = st.integers(-8000, 8000).map(lambda value: value / 8)
"""Differences of these are exact, so that an order can be compared without a tolerance."""
IDS = st.sampled_from("abcdefgh")


def legs_of(scores: st.SearchStrategy[float]) -> st.SearchStrategy[list[Leg]]:
    one = st.builds(
        Leg,
        name=st.just("leg"),
        scores=st.dictionaries(IDS, scores, max_size=8),
        weight=st.sampled_from([0.25, 0.4, 1.0, 3.0]),
        floor=st.none() | scores,
    )
    return st.lists(one, max_size=3).map(
        lambda legs: [replace(leg, name=f"leg{number}") for number, leg in enumerate(legs)]
    )


def hit(key: str, score: float) -> Fused:
    return Fused(key, score, {})


def order(hits: list[Fused]) -> list[str]:
    return [found.id for found in hits]


def scores(hits: list[Fused]) -> dict[str, float]:
    return {found.id: found.score for found in hits}


def test_the_score_is_the_weighted_mean_of_the_scaled_scores() -> None:
    dense = Leg("dense", {"a": 0.9, "b": 0.5, "c": 0.1}, weight=1.0)
    lexical = Leg("lexical", {"b": 12.0, "c": 3.0}, weight=0.5, floor=0.0)
    fused = fuse([dense, lexical])
    assert order(fused) == ["a", "b", "c"]
    assert scores(fused) == pytest.approx({"a": 1 / 1.5, "b": (0.5 + 0.5) / 1.5, "c": 0.125 / 1.5})
    assert fused[0].parts == {"dense": Part(0.9, 1.0), "lexical": Part(None, 0.0)}
    assert fused[2].parts == {"dense": Part(0.1, 0.0), "lexical": Part(3.0, 0.25)}


def test_an_absent_candidate_gets_the_legs_lowest_score_when_the_leg_has_no_floor() -> None:
    fused = fuse([Leg("dense", {"a": 3.0, "b": 1.0}, 1.0), Leg("lexical", {"c": 4.0, "a": 2.0}, 1.0)])
    assert scores(fused) == pytest.approx({"a": 0.5, "b": 0.0, "c": 0.5})


def test_a_floor_tells_a_lone_match_from_no_match() -> None:
    fused = fuse([Leg("dense", {"a": 0.5, "b": 0.5}, 1.0), Leg("lexical", {"b": 2.0}, 1.0, floor=0.0)])
    assert order(fused) == ["b", "a"]


def test_no_leg_and_empty_legs_give_nothing() -> None:
    assert fuse([]) == []
    assert fuse([Leg("dense", {}, 1.0), Leg("lexical", {}, 0.4, floor=0.0)]) == []


def test_an_empty_leg_changes_nothing() -> None:
    dense = Leg("dense", {"a": 0.9, "b": 0.5}, 1.0)
    assert fuse([dense, Leg("lexical", {}, 0.4, floor=0.0)]) == fuse([dense])


def test_a_constant_leg_changes_no_order() -> None:
    dense = Leg("dense", {"a": 0.1, "b": 0.5, "c": 0.3}, 1.0)
    assert order(fuse([dense, Leg("lexical", dict.fromkeys("abc", 7.0), 5.0)])) == ["b", "c", "a"]


def test_one_candidate_is_returned() -> None:
    assert order(fuse([Leg("dense", {"a": 0.3}, 1.0)])) == ["a"]


def test_ties_are_broken_by_id() -> None:
    assert order(fuse([Leg("dense", {"c": 1.0, "a": 1.0, "b": 1.0}, 1.0)])) == ["a", "b", "c"]


@pytest.mark.parametrize("score", [math.nan, math.inf, -math.inf])
def test_a_score_that_is_not_finite_is_refused_by_name(score: float) -> None:
    with pytest.raises(ValueError, match="dense: the score of b"):
        fuse([Leg("dense", {"a": 1.0, "b": score}, 1.0)])


@pytest.mark.parametrize("weight", [0.0, -1.0, math.nan, math.inf])
def test_a_weight_that_is_not_positive_is_refused(weight: float) -> None:
    with pytest.raises(ValueError, match="leg dense: weight"):
        fuse([Leg("dense", {"a": 1.0}, weight)])


def test_two_legs_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="two legs bear one name: dense, dense"):
        fuse([Leg("dense", {"a": 1.0}, 1.0), Leg("dense", {"b": 1.0}, 1.0)])


@given(legs_of(FINITE))
def test_every_candidate_is_ranked_once_with_a_score_from_0_to_1(legs: list[Leg]) -> None:
    fused = fuse(legs)
    assert sorted(order(fused)) == sorted({key for leg in legs for key in leg.scores})
    assert all(-1e-9 <= found.score <= 1 + 1e-9 for found in fused)
    assert fused == sorted(fused, key=lambda found: (-found.score, found.id))


@given(legs_of(EIGHTHS), st.data())
def test_raising_a_candidates_score_in_one_leg_never_lowers_its_rank(legs: list[Leg], data: st.DataObject) -> None:
    choices = [(number, key) for number, leg in enumerate(legs) for key in leg.scores]
    if not choices:
        assert fuse(legs) == []
        return
    number, key = data.draw(st.sampled_from(sorted(choices)))
    by = data.draw(st.integers(1, 16000)) / 8
    raised = list(legs)
    raised[number] = replace(legs[number], scores={**legs[number].scores, key: legs[number].scores[key] + by})
    assert order(fuse(raised)).index(key) <= order(fuse(legs)).index(key)


@given(legs_of(EIGHTHS), st.sampled_from([0.25, 2.0, 1024.0]), EIGHTHS)
def test_a_legs_scale_and_origin_do_not_matter(legs: list[Leg], factor: float, shift: float) -> None:
    moved = [
        replace(
            leg,
            scores={key: score * factor + shift for key, score in leg.scores.items()},
            floor=None if leg.floor is None else leg.floor * factor + shift,
        )
        for leg in legs
    ]
    assert scores(fuse(moved)) == pytest.approx(scores(fuse(legs)))


@given(legs_of(EIGHTHS))
def test_the_order_candidates_come_in_does_not_matter(legs: list[Leg]) -> None:
    backwards = [replace(leg, scores=dict(list(leg.scores.items())[::-1])) for leg in legs]
    assert fuse(backwards) == fuse(legs)


def test_a_turn_is_ranked_by_its_best_chunk_and_keeps_it() -> None:
    fused = [hit("t1#1", 0.9), hit("t2#0", 0.8), hit("t1#0", 0.7)]
    best = best_per_turn(fused, {"t1#0": "t1", "t1#1": "t1", "t2#0": "t2"})
    assert [(turn, found.id) for turn, found in best.items()] == [("t1", "t1#1"), ("t2", "t2#0")]


def test_a_reply_inherits_from_the_turn_before_it() -> None:
    best = {"q": hit("q#0", 0.8), "other": hit("o#0", 0.5), "reply": hit("r#0", 0.4)}
    places = {"q": Place("s", 3, "user"), "other": Place("s", 8, "user"), "reply": Place("s", 4, "assistant")}
    lifted = follow_on(best, places, share=0.5)
    assert list(lifted) == ["q", "reply", "other"]
    assert lifted["reply"].score == pytest.approx((0.4 + 0.5 * 0.8) / 1.5)
    assert lifted["reply"].parts == {"previous": Part(0.8, 0.8)}
    assert lifted["q"] == hit("q#0", 0.8 / 1.5)


@pytest.mark.parametrize(
    "before",
    [
        Place("s", 3, "tool"),
        Place("s", 3, "system"),
        Place("s", 2, "user"),
        Place("s", 5, "user"),
        Place("x", 3, "user"),
    ],
    ids=["a tool's output", "a system note", "one turn further back", "the turn after", "another session"],
)
def test_nothing_is_inherited_from(before: Place) -> None:
    best = {"before": hit("b#0", 0.8), "reply": hit("r#0", 0.4)}
    lifted = follow_on(best, {"before": before, "reply": Place("s", 4, "assistant")}, share=0.5)
    assert lifted["reply"] == hit("r#0", 0.4 / 1.5)


@pytest.mark.parametrize(("chars", "parts"), [(600, {"previous": Part(0.8, 0.8)}), (601, {})])
def test_only_a_turn_of_at_most_600_characters_inherits(chars: int, parts: dict[str, Part]) -> None:
    best = {"q": hit("q#0", 0.8), "reply": hit("r#0", 0.4)}
    places = {"q": Place("s", 3, "user", 5000), "reply": Place("s", 4, "assistant", chars)}
    assert follow_on(best, places)["reply"].parts == parts


def test_a_tools_output_inherits_nothing() -> None:
    best = {"call": hit("c#0", 0.8), "output": hit("o#0", 0.4)}
    lifted = follow_on(best, {"call": Place("s", 3, "assistant"), "output": Place("s", 4, "tool")}, share=0.5)
    assert lifted["output"].score == pytest.approx(0.4 / 1.5)


def test_two_roles_at_one_index_pass_on_the_better_score() -> None:
    best = {"a": hit("a", 0.8), "b": hit("b", 0.6), "c": hit("c", 0.1)}
    places = {"a": Place("s", 1, "user"), "b": Place("s", 1, "assistant"), "c": Place("s", 2, "user")}
    assert follow_on(best, places, share=1.0)["c"].parts == {"previous": Part(0.8, 0.8)}


def test_follow_on_of_nothing_is_nothing() -> None:
    assert follow_on({}, {}) == {}


def test_a_blend_is_the_weighted_mean_of_both_scaled_scores() -> None:
    mixed = blend([hit("a", 0.9), hit("b", 0.7), hit("c", 0.5)], [-2.0, 6.0, 2.0], weight=3.0, name="bge")
    assert order(mixed) == ["b", "c", "a"]
    assert scores(mixed) == pytest.approx({"a": 1 / 4, "b": (0.5 + 3) / 4, "c": 1.5 / 4})
    assert mixed[0].parts["bge"] == Part(6.0, 1.0)
    assert mixed[0].parts["first_stage"].raw == 0.7


def test_the_unreached_follow_the_reached_in_first_stage_order() -> None:
    first = [hit("a", 0.9), hit("b", 0.8), hit("c", 0.7), hit("d", 0.6), hit("e", 0.5)]
    mixed = blend(first, [1.0, 5.0, None, None, None], weight=4.0)
    assert order(mixed) == ["b", "a", "c", "d", "e"]
    assert [found.score for found in mixed] == sorted((found.score for found in mixed), reverse=True)
    assert "rerank" not in mixed[2].parts


def test_when_the_reranker_reached_none_the_first_stage_stands() -> None:
    first = [hit("b", 0.9), hit("a", 0.8)]
    assert blend(first, [None, None]) == first
    assert blend([], []) == []


def test_a_reranker_that_scores_all_alike_leaves_the_order() -> None:
    first = [hit("b", 0.9), hit("a", 0.8), hit("c", 0.8)]
    assert order(blend(first, [0.0, 0.0, 0.0])) == ["b", "a", "c"]


def test_a_blend_refuses_scores_of_another_pool() -> None:
    with pytest.raises(ValueError, match="2 candidates, 1 reranked"):
        blend([hit("a", 0.9), hit("b", 0.8)], [1.0])
    with pytest.raises(ValueError, match="bge: the score of a is nan"):
        blend([hit("a", 0.9)], [math.nan], name="bge")


@given(st.lists(EIGHTHS, min_size=1, max_size=8, unique=True), st.data())
def test_a_blend_keeps_every_candidate_and_what_was_read_stays_ahead(values: list[float], data: st.DataObject) -> None:
    first = [hit(f"c{number}", value) for number, value in enumerate(sorted(values, reverse=True))]
    scored = data.draw(st.lists(st.none() | EIGHTHS, min_size=len(first), max_size=len(first)))
    reached = {found.id for found, score in zip(first, scored, strict=True) if score is not None}
    mixed = blend(first, scored)
    assert {found.id for found in mixed[: len(reached)]} == reached
    assert sorted(order(mixed)) == sorted(order(first))
    unread = [found.id for found in first if found.id not in reached]
    assert [key for key in order(mixed) if key not in reached] == unread
    if reached:
        assert [found.score for found in mixed] == sorted((found.score for found in mixed), reverse=True)


@given(st.lists(EIGHTHS, min_size=1, max_size=8, unique=True), st.data())
def test_a_higher_reranked_score_never_lowers_a_rank(values: list[float], data: st.DataObject) -> None:
    first = [hit(f"c{number}", value) for number, value in enumerate(sorted(values, reverse=True))]
    scored = data.draw(st.lists(EIGHTHS, min_size=len(first), max_size=len(first)))
    place = data.draw(st.integers(0, len(first) - 1))
    raised = [score + (number == place) * 3.5 for number, score in enumerate(scored)]
    key = first[place].id
    assert order(blend(first, raised)).index(key) <= order(blend(first, scored)).index(key)
