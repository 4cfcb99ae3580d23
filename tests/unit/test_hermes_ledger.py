"""Turn indexes: a turn told again has the one it had, no two turns share one, what was taken back is replaced."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from producers.events import LIVE_FROM
from producers.hermes.ledger import Ledger


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path)


def place(ledger: Ledger, question: str, answer: str = "a", session: str = "s", asked: list[str] | None = None) -> int:
    return (ledger.index_of(session, question, answer, asked) - LIVE_FROM) // 2


def test_indexes_grow_by_two_and_go_on_after_a_restart(tmp_path: Path) -> None:
    assert Ledger(tmp_path).index_of("s", "one", "a") == LIVE_FROM
    assert Ledger(tmp_path).index_of("s", "two", "b") == LIVE_FROM + 2
    assert Ledger(tmp_path).index_of("other", "one", "a") == LIVE_FROM
    assert Ledger(tmp_path).index_of("s", "three", "c") == LIVE_FROM + 4


def test_an_exchange_that_is_told_again_keeps_its_index(ledger: Ledger) -> None:
    assert [place(ledger, "one"), place(ledger, "two"), place(ledger, "two"), place(ledger, "three")] == [0, 1, 1, 2]
    assert place(ledger, "two", "another answer") == 3, "the same question later is another turn"


def test_what_was_taken_back_is_replaced_in_its_place(ledger: Ledger) -> None:
    for question in ("one", "two", "three", "four"):
        place(ledger, question)
    assert place(ledger, "new", asked=["one", "two", "new"]) == 2
    assert place(ledger, "next") == 3
    assert place(ledger, "anew", asked=["anew"]) == 0
    assert place(ledger, "next") == 1


def test_a_history_that_was_compacted_or_has_grown_behind_the_question_is_read_right(ledger: Ledger) -> None:
    for question in ("one", "two", "three"):
        place(ledger, question)
    assert place(ledger, "new", asked=["[summary]", "two", "new", "and the next already"]) == 2
    assert place(ledger, "newer", asked=["[summary]", "newer"]) == 3, "nothing known stands before it: all is kept"
    assert place(ledger, "newest", asked=["something else"]) == 4


def test_without_a_disk_every_exchange_still_has_an_index_of_its_own(tmp_path: Path) -> None:
    blocked = tmp_path / "home"
    blocked.write_text("not a folder")
    ledger = Ledger(blocked)
    found = [ledger.index_of("s", str(number), "a") for number in range(3)]
    assert all(index > LIVE_FROM and index % 2 == 0 for index in found)


@settings(max_examples=25, deadline=None)  # each example writes to the disk
@given(st.lists(st.tuples(st.sampled_from("ab"), st.text(max_size=3)), max_size=20))
def test_in_a_session_no_index_is_given_to_two_exchanges(
    tmp_path_factory: pytest.TempPathFactory, said: list[tuple[str, str]]
) -> None:
    ledger = Ledger(tmp_path_factory.mktemp("ledger"))
    given_: dict[tuple[str, int], str] = {}
    last: dict[str, int] = {}
    for session, question in said:
        index = ledger.index_of(session, question, "a")
        assert given_.setdefault((session, index), question) == question
        assert index >= last.get(session, 0)
        last[session] = index
