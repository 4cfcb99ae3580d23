"""What is before the agent, through switches and compactions."""

from __future__ import annotations

from producers.hermes.recalling import ALL_TURNS, RECENT_TURNS, bounded
from producers.hermes.session import Session


def test_all_of_the_live_session_is_before_the_agent() -> None:
    session = Session("a")
    session.said(2)
    assert session.in_context == {"a": ALL_TURNS}


def test_after_a_compaction_in_place_only_its_newest_turns_are() -> None:
    session = Session("a")
    session.compacted()
    assert session.switched("a", "a", reset=False, reason="compression") is session
    session.said(2)
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


def test_a_block_over_the_bound_is_cut_at_a_line_and_closed() -> None:
    block = "<recalled-memory>\n" + "\n".join(f"line {number}" for number in range(3000)) + "\n</recalled-memory>"
    cut = bounded(block, 1000)
    assert len(cut) <= 1000
    assert cut.endswith("\n[…]\n</recalled-memory>")
    assert bounded(cut, 1000) is cut
    assert len(bounded("x" * 5000, 1000)) <= 1000
