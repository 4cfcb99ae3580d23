"""The words of a text, as full-text search knows them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.stores.terms import MAX_QUESTION_TERMS, MAX_TERM_CHARS, question_terms, search_text, terms


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("!? … 。", []),
        ("Plain words, twice: words", ["Plain", "words", "twice", "words"]),
        ("retry_after", ["retry", "after", "retry_after"]),
        ("RetryAfter", ["Retry", "After", "RetryAfter"]),
        ("HTTPServer2", ["HTTP", "Server2", "HTTPServer2"]),
        ("src/app_main.py", ["src", "app", "main", "app_main", "py", "src/app_main.py"]),
        ("v1.2", ["v1", "2", "v1.2"]),
        ("__init__", ["init"]),
        ("___", []),
        ("我用RetryAfter。", ["我", "用", "我用", "Retry", "After", "RetryAfter"]),
        ("日本語", ["日", "本", "語", "日本", "本語"]),
        ("ＲＥＴＲＹ café", ["RETRY", "café"]),
        ("cafe\u0301", ["café"]),
        ("हिन्दी", ["हिन्दी"]),
        ("привет мир", ["привет", "мир"]),
        ("a\ud800b", ["a", "b"]),
    ],
)
def test_words_identifiers_and_unspaced_scripts_are_cut_as_documented(text: str, expected: list[str]) -> None:
    assert terms(text) == expected


@given(st.text())
def test_any_text_gives_terms_that_the_whitespace_tokenizer_keeps(text: str) -> None:
    found = terms(text)
    assert search_text(text).split() == found
    assert all(0 < len(term) <= MAX_TERM_CHARS for term in found)


@given(st.lists(st.from_regex(r"[a-z][a-z0-9]{0,8}", fullmatch=True), min_size=1, max_size=4), st.sampled_from("_./-:"))
def test_an_identifier_is_found_whole_and_by_each_of_its_parts(parts: list[str], separator: str) -> None:
    snake, camel = separator.join(parts), "".join(part.capitalize() for part in parts)
    found = terms(f"see {snake}, or {camel}")
    assert {snake, camel, *parts} <= set(found)


def test_a_question_is_split_into_content_and_function_words() -> None:
    assert question_terms("Where is the Retry_After?") == (["retry", "after", "retry_after"], ["where", "is", "the"])


def test_a_very_long_question_is_bounded() -> None:
    content, function = question_terms("重试 the word " * 20_000)
    assert len(content) + len(function) == MAX_QUESTION_TERMS
