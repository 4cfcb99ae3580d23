"""The fit of the weights: it finds what is there, and says when a gain does not hold on what it has not seen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from query.evaluation.fit import Case, _parts, fit_weights
from query.evaluation.metrics import Judged, TurnRef

TURNS = 30


@dataclass(frozen=True)
class Legs:
    """Two scorings of 30 turns."""

    dense: np.ndarray
    lexical: np.ndarray


@dataclass(frozen=True)
class Weights:
    lexical: float = 0.5
    unused: float = 0.2
    name: str = "not a weight"


def rank(legs: Legs, weights: Weights) -> Sequence[TurnRef]:
    scores = legs.dense + weights.lexical * legs.lexical
    return [("s", int(turn)) for turn in np.argsort(-scores, kind="stable")]


def cases(count: int, signal: float, conversations: int = 10, seed: int = 1) -> list[Case[Legs]]:
    """Questions whose evidence the lexical leg tells by `signal`, and the dense leg a little."""
    random = np.random.default_rng(seed)
    found = []
    for number in range(count):
        evidence = int(random.integers(TURNS))
        dense, lexical = random.normal(size=TURNS), random.normal(size=TURNS)
        dense[evidence] += 0.7
        lexical[evidence] += signal
        judged = Judged(f"q{number}", frozenset({("s", evidence)}))
        found.append(Case(judged, f"c{number % conversations}", Legs(dense, lexical)))
    return found


def test_a_weight_that_matters_is_found_and_its_gain_holds_on_unseen_conversations() -> None:
    fit = fit_weights(cases(120, signal=2.5), rank, Weights())
    assert fit.weights.lexical > 0.9
    assert fit.weights.unused == 0.2, "what changes nothing stays at its default"
    assert fit.weights.name == "not a weight"
    assert fit.held_out is not None
    assert fit.held_out.beyond_chance
    assert 0 < fit.held_out.mean <= fit.in_sample.mean + 0.01
    assert "worth setting" in fit.advice()


def test_noise_gains_where_it_was_fitted_and_not_elsewhere() -> None:
    fit = fit_weights(cases(40, signal=0.35), rank, Weights())
    assert fit.in_sample.mean >= 0
    assert fit.held_out is not None
    assert fit.held_out.mean <= fit.in_sample.mean
    assert "keep the default weights" in fit.advice()


def test_the_same_cases_give_the_same_fit() -> None:
    assert fit_weights(cases(30, 1.5), rank, Weights()) == fit_weights(cases(30, 1.5), rank, Weights())


def test_one_conversation_leaves_nothing_to_hold_out() -> None:
    fit = fit_weights(cases(20, 2.5, conversations=1), rank, Weights())
    assert fit.held_out is None
    assert "all of one conversation" in fit.advice()
    assert fit.as_dict()["held_out"] is None
    assert set(fit.as_dict()["weights"]) == {"lexical", "unused"}


def test_features_are_ranked_once_for_each_point_whatever_the_folds() -> None:
    asked: list[tuple[int, Weights]] = []

    def counted(legs: Legs, weights: Weights) -> Sequence[TurnRef]:
        asked.append((id(legs), weights))
        return rank(legs, weights)

    fit_weights(cases(15, 1.0), counted, Weights())
    assert len(asked) == len(set(asked))


def test_a_range_bounds_its_weight_and_must_be_of_one() -> None:
    fit = fit_weights(cases(60, signal=2.5), rank, Weights(), {"lexical": (0.0, 0.6)})
    assert fit.weights.lexical <= 0.6
    with pytest.raises(ValueError, match="range for lexcal: no such weight"):
        fit_weights(cases(5, 1.0), rank, Weights(), {"lexcal": (0, 1)})
    with pytest.raises(ValueError, match="no question with evidence"):
        fit_weights([], rank, Weights())


@settings(deadline=None)
@given(st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=60), st.integers(2, 6))
def test_no_conversation_is_in_two_parts_and_every_question_in_one(conversations: list[str], folds: int) -> None:
    parts = _parts(conversations, folds)
    assert len(parts) == min(folds, len(set(conversations)))
    assert sorted(position for part in parts for position in part) == list(range(len(conversations)))
    held = [{conversations[position] for position in part} for part in parts]
    assert sum(map(len, held)) == len(set(conversations))
    assert all(held)
