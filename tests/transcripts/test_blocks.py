"""What readers share: elements cut out of a text, prose out of pieces, a memory that forgets. Pure."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from producers.transcripts.blocks import Prose, blocks, without_elements
from producers.transcripts.port import ReadOptions
from producers.transcripts.recent import Recent


@pytest.mark.parametrize(
    ("text", "left", "count"),
    [
        ("plain <b>text</b>", "plain <b>text</b>", 0),
        ("  <a>x</a>  kept  ", "    kept  ", 1),
        ("<a>1</a>x<c d='e'>2</c>", "x", 2),
        ("<a>one <a>two</a> three", "three", 1),
        ("x <a>open", "x <a>open", 0),
        ("<a>open", "", 1),
        ("<ab>other</ab>", "<ab>other</ab>", 0),
        ("<c>1</c> <a>open", "", 2),
    ],
)
def test_elements_are_cut_out(text: str, left: str, count: int) -> None:
    found, number = without_elements(text, ("a", "c"))
    assert (found.strip(), number) == (left.strip(), count)


@pytest.mark.timeout(20)
@pytest.mark.parametrize("piece", ["<a>", "</a>", "<a ", "<a><c>", "<"])
def test_a_text_of_nothing_but_tags_is_read_in_linear_time(piece: str) -> None:
    without_elements("x" + piece * 500_000, ("a", "c"))


@given(st.lists(st.sampled_from(["text", " ", None])), st.booleans())
def test_thinking_leaves_a_marker_between_prose_only(pieces: list[str | None], keep: bool) -> None:
    prose = Prose(ReadOptions(thinking=keep))
    for piece in pieces:
        if piece is None:
            assert prose.think("hm") is not keep
        else:
            prose.add(piece)
    parts = prose.text().split("\n\n") if prose else []
    assert parts.count("text") == pieces.count("text")
    if not keep:
        assert parts[:1] != ["[thinking left out]"]
        assert parts[-1:] != ["[thinking left out]"]


def test_content_is_blocks_whatever_it_is() -> None:
    assert blocks("a") == [{"type": "text", "text": "a"}]
    assert blocks(["a", {"type": "x"}, 1, None]) == [{"type": "text", "text": "a"}, {"type": "x"}]
    assert blocks(None) == blocks(7) == blocks({"a": 1}) == []


def test_what_was_used_longest_ago_is_forgotten() -> None:
    recent = Recent(2)
    for key in "abac":
        recent.put(key, key.upper())
    assert (recent.get("a"), recent.get("b"), recent.get("c")) == ("A", None, "C")
    assert Recent(2, recent.state()).state() == recent.state()
