"""Tokens without a tokenizer."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from query.token_estimate import estimate_tokens, prefix_within

TEXTS = st.text(max_size=300) | st.text("ab 12\n证书过期。🙂e\u0301", max_size=300)


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("", 0),
        ("the port is 8443", 5),
        ("证书过期导致部署失败。", 11),
        ("証明書の期限", 6),
        ("misunderstanding", 3),
        ("a,b\nc", 5),
        ("    return x", 3),
        ("привет", 3),
        ("🙂", 3),
    ],
)
def test_words_digits_marks_and_chinese_are_counted_each_in_its_way(text: str, tokens: int) -> None:
    assert estimate_tokens(text) == tokens


@given(TEXTS, TEXTS)
def test_texts_joined_by_a_line_break_take_the_sum_of_both_and_one(one: str, other: str) -> None:
    assert estimate_tokens(f"{one}\n{other}") == estimate_tokens(one) + 1 + estimate_tokens(other)


@given(TEXTS, st.integers(0, 100))
def test_a_beginning_keeps_its_bound_and_is_the_longest_that_does(text: str, tokens: int) -> None:
    end = prefix_within(text, tokens)
    assert estimate_tokens(text[:end]) <= tokens
    if end < len(text):
        assert prefix_within(text, tokens + 50) > end or estimate_tokens(text[: end + 1]) > tokens
