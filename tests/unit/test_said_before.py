"""The lines that are said to have come before a question: short, in order, the newest last."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from producers.events import Role, TurnEvent
from producers.said_before import MOST_CHARS, TURN_CHARS, said_before


def turn(content: str, role: Role = "user") -> TurnEvent:
    return TurnEvent(session_id="s", turn_index=0, role=role, content=content)


def test_each_turn_is_a_line_under_those_before_it() -> None:
    first = said_before([turn("which ferry?"), turn("The\nfirst  one.", "assistant")])
    assert first == "user: which ferry?\nassistant: The first one."
    assert said_before([turn("when?")], first) == f"{first}\nuser: when?"
    assert said_before([], first) == first
    assert said_before([]) == ""


def test_of_a_long_turn_both_ends_are_there() -> None:
    line = said_before([turn("The harbour. " + "x" * 10_000 + " Which ferry?")])
    assert line.startswith("user: The harbour.")
    assert line.endswith("Which ferry?")
    assert len(line) <= TURN_CHARS + len("user: ")


@given(st.lists(st.text("ab 港\n", min_size=1, max_size=3 * TURN_CHARS).filter(str.strip), max_size=12))
def test_however_much_is_said_it_is_bounded_and_ends_with_the_newest(contents: list[str]) -> None:
    said = ""
    for content in contents:
        said = said_before([turn(content)], said)
        assert len(said) <= MOST_CHARS
        assert said.endswith(" ".join(content[-80:].split()))
