"""Where a text that does not fit ends: after whole sentences and lines, never inside a character or an open fence."""

from __future__ import annotations

import re

import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st

from query.cutting import ELLIPSIS, Size, fit, lines_of

PIECES = st.sampled_from(
    [
        *(
            "证书过期了。",
            "The port is 8443. ",
            "e\u0301",
            "👩\u200d🚀",
            "🇨🇳",
            "```",
            "```python",
            "~~~~",
            "\n",
            "\n\n",
        ),
        *(" | a | ", "- x", "word ", "\r", "\u2028"),
    ]
)
CONTENTS = st.lists(PIECES | st.text(max_size=20), min_size=1, max_size=120).map("".join).filter(str.strip)


@given(CONTENTS, st.integers(0, 600), st.none() | st.integers(0, 150), st.booleans())
def test_a_piece_is_the_beginning_of_the_text_up_to_a_whole_character_with_its_fences_closed(
    text: str, chars: int, tokens: int | None, goes_on: bool
) -> None:
    room = Size(chars, tokens)
    piece = fit(text, room, goes_on=goes_on)
    assert not piece or room.holds(piece)
    assert not piece or not list(lines_of(piece))[-1].mark
    if ELLIPSIS in piece and ELLIPSIS not in text:
        kept = piece[: piece.rindex(ELLIPSIS)].rstrip()
        assert text.startswith(kept)
        assert kept == "".join(regex.findall(r"\X", text))[: len(kept)]
        ends = {found.end() for found in regex.finditer(r"\X", text)}
        assert len(kept) in ends or not text[len(kept)].strip()


@pytest.mark.parametrize(
    ("text", "ends"),
    [
        ("First sentence here. " * 20, "here."),
        ("第一句话在这里。" * 30, "。"),
        ("他问：“证书过期了吗？”" * 20, "？”"),
        ("Ask Dr. Who, e.g. J. Smith, about it in v1.2 please! " * 8, "please!"),
        ("Wrapped where the\nline was full. " * 12, "full."),
        ("A log line\n" * 40, "A log line"),
        ("word " * 100, "word"),
        ("x" * 500, "x"),
        ("Short. " + "word " * 100, "word"),
        ("e\u0301" * 300, "e\u0301"),
        ("👩‍🚀" * 100, "👩‍🚀"),
        ("一" * 14 + "。" + "二" * 300, "。"),
    ],
)
def test_a_cut_falls_after_a_sentence_or_a_word_where_there_is_one(text: str, ends: str) -> None:
    cut = fit(text, Size(200))
    assert len(cut) <= 200
    assert re.search(rf"{re.escape(ends)}\s\[…\]$", cut)


@pytest.mark.parametrize(
    "row",
    ["| port | 8443, 8444. Or 8445. |", "- one item. It has two sentences.", "3. A step. And more of it.", "a | b. c"],
)
def test_tables_and_lists_end_with_a_whole_line(row: str) -> None:
    text = "\n".join([row] * 20)
    for chars in range(90, len(text)):
        cut = fit(text, Size(chars))
        assert not cut or set(cut.split("\n")) == {row, ELLIPSIS}
    assert fit(row * 40, Size(200)) == "", "a line that does not fit is not cut"


def test_code_ends_with_a_whole_line_and_its_fence_is_closed() -> None:
    assert fit("```python\nprint(1)", Size(100)) == "```python\nprint(1)\n```"
    assert fit("```\na\n```", Size(100)) == "```\na\n```"
    code = "````md\n" + "print('a. b. c')\n```\n" * 20 + "````"
    for chars in range(80, 300):
        lines = fit(code, Size(chars)).split("\n")
        assert lines == [""] or (lines[0], lines[-2], lines[-1]) == ("````md", ELLIPSIS, "````")
    after = "The words before the code are long enough to stand alone, they say what it is about. "
    assert fit(f"{after}\n```python\n{'x' * 400}\n```", Size(200)) == f"{after.strip()} {ELLIPSIS}"
