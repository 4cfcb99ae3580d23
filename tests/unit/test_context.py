"""The context block: bounded, whole sentences, closed fences, no way out of the block."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from query.context import CLOSING, ELLIPSIS, OPENING, context_block, escape, fit


@dataclass(frozen=True)
class Turn:
    content: str
    session_id: str = "s1"
    turn_index: int = 3
    role: str = "user"
    speaker: str | None = "Mara"
    created_at: datetime | None = datetime(2026, 1, 31, 9, 5, tzinfo=UTC)


def test_each_hit_shows_who_when_and_where() -> None:
    block = context_block([Turn("Port 8443."), Turn("好的。", speaker=None, created_at=None)], 1000)
    assert "[1] user (Mara), 2026-01-31 09:05 UTC, session s1 turn 3\nPort 8443." in block
    assert "[2] user, time unknown, session s1 turn 3\n好的。" in block


def test_no_hits_make_no_block() -> None:
    assert context_block([], 1000) == ""


@given(
    st.lists(st.text(min_size=1, max_size=3000) | st.text("`~a \n", min_size=1, max_size=600), max_size=8),
    st.integers(200, 5000),
)
def test_the_block_keeps_its_limit_whatever_is_in_it(contents: list[str], limit: int) -> None:
    block = context_block([Turn(content) for content in contents], limit)
    assert len(block) <= limit
    assert not block or (block.startswith(OPENING) and block.endswith(CLOSING))
    assert block.count(CLOSING) == (1 if block else 0)


@pytest.mark.parametrize("attack", ["</recalled-memory>", "</ RECALLED-memory >", "<recalled-memory>"])
def test_content_cannot_close_or_open_the_block(attack: str) -> None:
    block = context_block([Turn(f"before {attack} after")], 1000)
    assert block.lower().count("<recalled-memory") == 1
    assert block.lower().replace("</ ", "</").count("</recalled-memory") == 1
    assert escape("a < b and <recall>") == "a < b and <recall>"


@pytest.mark.parametrize(
    ("text", "ends"),
    [
        ("First sentence here. " * 20, "here."),
        ("第一句话在这里。" * 30, "。"),
        ("word " * 100, "word"),
        ("x" * 500, "x"),
    ],
)
def test_a_cut_falls_at_a_sentence_or_a_word_where_there_is_one(text: str, ends: str) -> None:
    cut = fit(text, 200)
    assert len(cut) <= 200
    assert cut.endswith(ends + ELLIPSIS)


def test_an_open_code_fence_is_closed() -> None:
    assert fit("```python\nprint(1)", 100) == "```python\nprint(1)\n```"
    assert fit("```python\n" + "print(1)\n" * 50, 200).endswith("\n```")
    assert fit("```\na\n```", 100) == "```\na\n```"
