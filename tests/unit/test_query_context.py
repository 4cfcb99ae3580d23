"""The lines before a question: what of them is read with it, and that the question still decides."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from producers.errors import UsageError
from query.query_context import READ_CHARS, in_context, leaning
from query.question import MAX_QUESTION_CHARS, Question
from workers.stores.scope import Scope

ASKED = "and the second one?"
TEXT = st.text(st.sampled_from("ab 港\n:\"”'") | st.characters(), max_size=READ_CHARS * 2)


def read(question: str, context: str) -> str | None:
    found = in_context(question, context, 0.5)
    return None if found is None else found.text


@pytest.mark.parametrize(
    ("context", "text"),
    [
        ("Ada: which ferries are there?\nBob: two.", f"Ada: which ferries are there?\nBob: two.\n{ASKED}"),
        (f"Bob: two.\n{ASKED}\n", f"Bob: two.\n{ASKED}"),
        (f"Bob: two.\nAda: {ASKED}", f"Bob: two.\n{ASKED}"),
        (f'<Bob>: "two."\n<Ada>: "{ASKED}"', f'<Bob>: "two."\n{ASKED}'),
        (f"鲍勃：“两班。”\n艾达：“{ASKED}”", f"鲍勃：“两班。”\n{ASKED}"),
        (f"{ASKED}\nBob: yes", f"{ASKED}\nBob: yes\n{ASKED}"),
        (f"Ada: {ASKED}", None),
        (ASKED, None),
        (" \n ", None),
        ("", None),
    ],
    ids="lines asked named quoted chinese earlier only-it bare blank none".split(),
)
def test_the_question_stands_once_after_the_lines_before_it(context: str, text: str | None) -> None:
    assert read(ASKED, context) == text


def test_of_many_lines_the_last_whole_ones_are_read() -> None:
    lines = [f"line number {number}" for number in range(200)]
    said = read(ASKED, "\n".join(lines))
    assert said is not None
    assert len(said) <= READ_CHARS + 1
    kept = said.split("\n")
    assert kept == [*lines[-len(kept) + 1 :], ASKED]


def test_of_one_long_line_the_last_whole_words_are_read_and_of_one_without_blanks_the_last_characters() -> None:
    words = read(ASKED, "word " * 1000)
    assert words is not None
    assert set(words.removesuffix(f"\n{ASKED}").split(" ")) == {"word"}
    assert read(ASKED, "港" * 1000) == "港" * ((READ_CHARS - len(ASKED)) // 2) + f"\n{ASKED}"


def test_a_question_that_fills_what_is_read_and_a_weight_of_0_leave_the_lines_out() -> None:
    assert read("x" * READ_CHARS, "Bob: two.") is None
    assert read("港" * (READ_CHARS // 2), "Bob: two.") is None
    assert in_context(ASKED, "Bob: two.", 0.0) is None


@given(TEXT.filter(str.strip), TEXT)
def test_whatever_is_given_it_is_bounded_made_of_the_context_and_ends_with_the_question(
    question: str, context: str
) -> None:
    said = read(question, context)
    if said is not None:
        asked = question.strip()
        assert len(said) <= READ_CHARS + 1
        assert said.endswith(f"\n{asked}")
        before = said[: -len(asked) - 1]
        assert before.strip()
        assert before in context


def test_each_turn_is_scored_by_the_sum_of_both_cosines() -> None:
    random = np.random.default_rng(1)
    question, both, *turns = (row / np.linalg.norm(row) for row in random.normal(size=(12, 8)))
    leant = leaning(question, both, 0.5)
    assert np.linalg.norm(leant) == pytest.approx(1)
    wanted = [turn @ question + 0.5 * (turn @ both) for turn in turns]
    assert np.argsort([turn @ leant for turn in turns]).tolist() == np.argsort(wanted).tolist()
    assert leaning(question, -question, 1.0).tolist() == question.tolist(), "nothing is left to lean"


def test_lines_beyond_the_limit_are_refused_without_being_shown() -> None:
    Question(ASKED, Scope("t"), query_context="x" * MAX_QUESTION_CHARS)
    with pytest.raises(UsageError) as caught:
        Question(ASKED, Scope("t"), query_context="x" * (MAX_QUESTION_CHARS + 1))
    assert str(caught.value) == (
        "query_context: 100,001 characters, over the limit of 100,000; give the last lines, since only the end is read"
    )
