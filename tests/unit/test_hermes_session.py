"""What is before the agent, through switches and compactions."""

from __future__ import annotations

from producers.events import TurnEvent
from producers.hermes.recalling import ALL_TURNS, RECENT_TURNS, bounded
from producers.hermes.session import Session


def exchange(question: str = "when?", answer: str = "at noon") -> list[TurnEvent]:
    said = (("user", question), ("assistant", answer))
    return [TurnEvent(session_id="a", turn_index=n, role=role, content=text) for n, (role, text) in enumerate(said)]


def test_all_of_the_live_session_is_before_the_agent() -> None:
    session = Session("a")
    session.said(exchange())
    assert session.in_context == {"a": ALL_TURNS}


def test_after_a_compaction_in_place_only_its_newest_turns_are() -> None:
    session = Session("a")
    session.compacted()
    assert session.switched("a", "a", reset=False, reason="compression") is session
    session.said(exchange())
    assert session.in_context == {"a": RECENT_TURNS + 2}


def test_a_session_that_continues_a_compacted_one_has_its_tail() -> None:
    session = Session("a").switched("b", "a", reset=False, reason="compression")
    assert (session.id, session.parent) == ("b", "a")
    assert session.in_context == {"a": RECENT_TURNS, "b": ALL_TURNS}


def test_a_branch_has_all_of_its_parent() -> None:
    session = Session("a").switched("b", "a", reset=False, reason="branch")
    assert (session.parent, session.in_context) == ("a", {"a": ALL_TURNS, "b": ALL_TURNS})


def test_a_new_or_resumed_session_has_nothing_of_the_one_before() -> None:
    for reset, reason in ((True, "new_session"), (False, "resume")):
        session = Session("a").switched("b", "a", reset=reset, reason=reason)
        assert (session.id, session.parent, session.in_context) == ("b", "", {"b": ALL_TURNS})


def test_the_last_lines_go_along_with_a_session_that_continues_and_stay_behind_otherwise() -> None:
    session = Session("a")
    session.said(exchange("which ferry?"))
    lines = "user: which ferry?\nassistant: at noon"
    assert session.before == lines
    for reason in ("branch", "compression"):
        assert session.switched("b", "a", reset=False, reason=reason).before == lines
    for reset, reason in ((True, "new_session"), (False, "resume")):
        assert session.switched("b", "a", reset=reset, reason=reason).before == ""


def test_what_was_taken_back_is_not_among_the_last_lines() -> None:
    session = Session("a")
    session.said(exchange("which ferry?"))
    session.rewind()
    assert (session.rewound, session.before) == (True, "")
    session.said(exchange("which train?"))
    assert session.before == "user: which train?\nassistant: at noon"


def test_a_block_over_the_bound_is_cut_at_a_line_and_closed() -> None:
    block = "<recalled-memory>\n" + "\n".join(f"line {number}" for number in range(3000)) + "\n</recalled-memory>"
    cut = bounded(block, 1000)
    assert len(cut) <= 1000
    assert cut.endswith("\n[…]\n</recalled-memory>")
    assert bounded(cut, 1000) is cut
    assert len(bounded("x" * 5000, 1000)) <= 1000
