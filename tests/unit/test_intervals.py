"""Bootstrap intervals: they cover what they should, they are paired, and few questions prove nothing."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from query.evaluation.intervals import MIN_DIFFERING, gain, gains, intervals

SHARES = st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0]), min_size=1, max_size=40)


def column(values: list[float]) -> np.ndarray:
    return np.array(values).reshape(-1, 1)


@given(SHARES)
def test_an_interval_holds_its_mean_and_stays_among_the_values(values: list[float]) -> None:
    (one,) = intervals(column(values))
    assert min(values) - 1e-9 <= one.low <= one.mean <= one.high <= max(values) + 1e-9
    assert one.questions == len(values)


def test_the_interval_covers_the_true_mean_about_as_often_as_it_says() -> None:
    random = np.random.default_rng(7)
    samples = [random.random((60, 1)) ** 2 for _ in range(200)]  # the mean of x² over 0 to 1 is 1/3
    covered = sum(one.low <= 1 / 3 <= one.high for one in intervals(np.hstack(samples)))
    assert 0.90 <= covered / 200 <= 0.985


def test_a_small_gain_on_every_question_shows_though_the_questions_differ_widely() -> None:
    random = np.random.default_rng(3)
    base = random.random(50)
    paired = gain(base + 0.02, base)
    assert paired.beyond_chance
    assert paired.mean == pytest.approx(0.02)
    (alone,) = intervals(column(list(base)))
    assert alone.high - alone.low > 0.1, "unpaired, the spread of the questions would hide it"


@pytest.mark.parametrize("questions", [1, 2, MIN_DIFFERING - 1])
def test_a_handful_of_questions_is_never_beyond_chance(questions: int) -> None:
    assert not gain([1.0] * questions, [0.0] * questions).beyond_chance
    many_alike = [0.0] * 100
    assert not gain([1.0] * questions + many_alike, [0.0] * questions + many_alike).beyond_chance


def test_as_many_as_a_coin_would_not_give_are() -> None:
    better = gain([1.0] * MIN_DIFFERING, [0.0] * MIN_DIFFERING)
    assert better.beyond_chance
    worse = gain([0.0] * MIN_DIFFERING, [1.0] * MIN_DIFFERING)
    assert worse.beyond_chance
    assert worse.mean == -1


def test_equal_settings_gain_nothing() -> None:
    same = gain([0.1, 0.5, 1.0] * 20, [0.1, 0.5, 1.0] * 20)
    assert (same.mean, same.low, same.high, same.differing, same.beyond_chance) == (0, 0, 0, 0, False)


def test_two_settings_that_only_trade_questions_do_not_differ() -> None:
    assert not gain([1.0, 0.0] * 30, [0.0, 1.0] * 30).beyond_chance


@given(SHARES, SHARES)
def test_what_is_compared_beside_a_column_changes_nothing_and_neither_does_asking_again(
    values: list[float], others: list[float]
) -> None:
    size = min(len(values), len(others))
    mine, beside = column(values[:size]), column(others[:size])
    alone = gains(mine, beside)[0]
    both = gains(np.hstack([mine, beside]), np.hstack([beside, mine]))
    assert both[0] == alone
    assert both[1].mean == pytest.approx(-alone.mean)


def test_thousands_of_questions_are_resampled_in_bounded_memory() -> None:
    (one,) = intervals(np.linspace(0, 1, 3000).reshape(-1, 1))
    assert one.high - one.low == pytest.approx(2 * 1.96 * 0.2887 / 3000**0.5, rel=0.1)
