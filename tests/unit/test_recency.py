"""Recency: the formula, turns without a time, and that it is off by default."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from query.ranking import Ranked
from query.recency import Recency, by_recency

NOW = datetime(2026, 6, 1, tzinfo=UTC)


def hit(turn: str, score: float) -> Ranked:
    return Ranked(turn, f"{turn}#0", score, {})


def ago(days: float) -> datetime:
    return NOW - timedelta(days=days)


def test_the_score_is_the_formulas() -> None:
    found = by_recency([hit("old", 1.0), hit("new", 0.9)], {"old": ago(60), "new": ago(0)}, Recency(0.3, 30), NOW)
    assert [(one.turn, one.score) for one in found] == [
        ("new", pytest.approx(0.7 * 0.9 + 0.3)),
        ("old", pytest.approx(0.7 + 0.3 * 0.25)),
    ]
    assert found[1].parts["recency"].raw == 0.25


def test_a_turn_without_a_time_neither_gains_nor_loses() -> None:
    said = {"a": ago(0), "b": None, "c": ago(30), "d": ago(3000)}
    found = by_recency([hit(turn, 0.5) for turn in "abcd"], said, Recency(0.5, 30), NOW)
    assert [one.turn for one in found] == ["a", "b", "c", "d"]
    assert found[1].score == found[2].score
    assert found[1].parts["recency"].raw is None
    assert [one.turn for one in by_recency([hit("x", 0.2)], {"x": None}, Recency(0.5, 30), NOW)] == ["x"]


def test_what_is_said_later_than_now_is_as_recent_as_can_be() -> None:
    assert Recency(0.5, 30).of(ago(-400), NOW) == 1.0


@given(st.floats(0, 1), st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1e5)), max_size=8))
def test_scores_stay_from_0_to_1_and_every_hit_stays(weight: float, hits: list[tuple[float, float]]) -> None:
    ranked = [hit(f"t{number}", score) for number, (score, _) in enumerate(hits)]
    said: dict[str, datetime | None] = {f"t{number}": ago(days) for number, (_, days) in enumerate(hits)}
    found = by_recency(ranked, said, Recency(weight, 30), NOW)
    assert sorted(one.turn for one in found) == sorted(one.turn for one in ranked)
    assert all(0 <= one.score <= 1 for one in found)


def test_without_weight_the_ranking_stands() -> None:
    ranked = [hit("b", 0.9), hit("a", 0.9)]
    assert by_recency(ranked, {"a": ago(0), "b": ago(900)}, Recency(0, 30), NOW) == ranked
