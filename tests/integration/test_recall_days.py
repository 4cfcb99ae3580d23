"""A question that names a day finds what was said on it, however much else there is."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from memory import Memory, contents, turn
from producers.settings import Settings

pytestmark = pytest.mark.integration

START = datetime(2025, 3, 1, 9, tzinfo=UTC)
DAYS = 300


@pytest.fixture
def memory(settings: Settings) -> Memory:
    """A talk about ports on each of 300 days."""
    memory = Memory(settings)
    days = [START + timedelta(day) for day in range(DAYS)]
    memory.store(*[turn(f"we talked about port {8000 + n}", n, created_at=day) for n, day in enumerate(days)])
    return memory


@pytest.mark.parametrize("asked", ["June 9th", "9 June 2025", "2025-06-09", "6月9日", "六月九号"])
def test_what_was_said_on_a_day_is_first(memory: Memory, asked: str) -> None:
    answer = memory.ask(f"Which port did we talk about on {asked}?", k=3, explain=True)
    assert contents(answer)[0] == "we talked about port 8100"
    explained = [hit.explain or {} for hit in answer.hits]
    assert ["day" in parts for parts in explained] == [True, False, False]


def test_a_day_is_a_preference_and_no_filter(memory: Memory) -> None:
    named = memory.ask("Did we talk about port 8007 on June 9th?", k=2)
    assert set(contents(named)) == {"we talked about port 8007", "we talked about port 8100"}
    assert len(memory.ask("Which port on 1999-01-01?", k=5).hits) == 5


def test_yesterday_counts_from_as_of(memory: Memory) -> None:
    now = START + timedelta(41)
    assert contents(memory.ask("which port yesterday?", k=1, as_of=now)) == ["we talked about port 8040"]


def test_the_scope_and_what_is_hidden_stay_so(memory: Memory) -> None:
    day = START + timedelta(100)
    memory.store(turn("we talked about port 9999", 0, tenant="other", created_at=day))
    assert "we talked about port 9999" not in contents(memory.ask("Which port on June 9th?", k=50))
    before = memory.ask("Which port on June 9th?", k=50, as_of=day - timedelta(1))
    assert "we talked about port 8100" not in contents(before)
