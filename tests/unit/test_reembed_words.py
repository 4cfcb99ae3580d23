"""What is said of a re-embedding, and the questions that are drawn for it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.maintenance.probing import MIN_CHARS, PART_CHARS, part_of
from workers.maintenance.reembed import worse
from workers.spaces_overview import duration, in_words
from workers.stores.space import Space


@given(st.text(min_size=MIN_CHARS).filter(lambda text: bool(text.strip())))
def test_a_part_is_a_part_and_never_blank(content: str) -> None:
    part = part_of(content)
    assert part
    assert part in content
    assert part == part.strip()
    assert len(part) <= PART_CHARS


def test_a_part_has_whole_words_where_there_are_any() -> None:
    words = "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi omicron pi rho " * 2
    assert part_of(words) == "mu nu xi omicron pi rho alpha beta gamma delta"
    assert len(part_of("证书过期了所以部署失败" * 20)) == PART_CHARS


@pytest.mark.parametrize(
    ("seconds", "said"), [(0.4, "0 s"), (99, "99 s"), (100, "2 min"), (3600, "60 min"), (7200, "2.0 h")]
)
def test_a_time_is_said_in_the_unit_that_a_person_would_use(seconds: float, said: str) -> None:
    assert duration(seconds) == said


def test_a_space_that_is_built_says_how_far_it_is() -> None:
    space: dict[str, Any] = {"state": "building", "dimension": 384, "chunk_tokens": 500, "filled": 1500, "turns": 6000}
    space |= {"share": 0.25, "turns_per_second": 28.4, "eta_s": 158}
    assert in_words(space) == (
        "building, 384 dimensions, chunks of 500 tokens, 1,500 of 6,000 turns (25.0%), 28 a second, about 3 min left"
    )
    space |= {"turns_per_second": None, "eta_s": None}
    assert in_words(space).endswith("turns (25.0%)")
    assert in_words({**space, "state": "active"}) == "active, 384 dimensions, chunks of 500 tokens"


def test_a_worse_model_is_reported_with_both_figures_and_what_to_do() -> None:
    figures = {"probes": 80, "probes_are": "given", "recall": 0.71, "recall_before": 0.8}
    said = worse(figures, Space("m", 8, 256, 32))
    assert "80 given questions is 0.710 with m, and 0.800 with the model before" in said
    assert all(option in said for option in ("--switch-anyway", "--cancel", "--probes"))
