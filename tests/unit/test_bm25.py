"""BM25 over the pool: hand-computed, and the neighbours' share."""

from __future__ import annotations

import math

import pytest

from query.bm25 import K1, B, Document, bm25
from query.words import WordCounts

WORDS = WordCounts(kept=8)


def documents(*texts: str) -> list[Document]:
    return [Document(WORDS.of(text)) for text in texts]


def test_a_score_is_the_formulas() -> None:
    found = bm25(["port"], [], documents("the port is open", "no words in common here"))
    idf = math.log1p((2 - 1 + 0.5) / (1 + 0.5))
    assert found == pytest.approx([idf * (K1 + 1) / (1 + K1 * (1 - B + B * 4 / 4.5)), 0.0])


def test_a_rare_word_weighs_more_than_a_common_one_and_function_words_less() -> None:
    common = documents("port one", "port two", "port heron")
    assert bm25(["port", "heron"], [], common).argmax() == 2
    both = bm25(["heron"], ["the"], documents("the weir", "heron weir", "a b c d"))
    assert both[1] > both[0] > 0 == both[2]


def test_a_question_of_function_words_alone_still_finds() -> None:
    alone = bm25([], ["the"], documents("the weir", "heron weir"))
    assert alone[0] == pytest.approx(bm25(["the"], [], documents("the weir", "heron weir"))[0])


def test_the_words_of_the_turn_before_find_its_answer() -> None:
    question, answer, other = (WORDS.of(text) for text in ("which port is it", "8443 since May", "8080 since June"))
    scores = bm25(["port"], [], [Document(question), Document(answer, [(0.4, question)]), Document(other)])
    assert scores[0] > scores[1] > scores[2] == 0


def test_nothing_asked_or_nothing_there_scores_0() -> None:
    assert bm25([], [], documents("a b")).tolist() == [0.0]
    assert bm25(["a"], [], documents("", "")).tolist() == [0.0, 0.0]
    assert bm25(["a"], [], []).tolist() == []


def test_words_are_those_of_full_text_search_and_the_least_used_texts_are_forgotten() -> None:
    words = WordCounts(kept=2)
    first = words.of("Retry_After 上海")
    assert first.counts["retry"] == first.counts["retry_after"] == first.counts["上海"] == 1
    assert words.of("Retry_After 上海") is first
    words.of("b"), words.of("Retry_After 上海"), words.of("c")
    assert words.of("Retry_After 上海") is first
    words.of("d"), words.of("e")
    assert words.of("Retry_After 上海") is not first
