"""Late interaction over a model that anyone can compute: a token is a letter, its vector an axis of its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from query.reranking.late_interaction import AFTER, BEFORE, LateInteraction, similarities, with_neighbours
from query.reranking.port import Passage
from query.reranking.token_encoder import Prepared
from rerank_passages import passages

DIMENSION = 128
EVERYTHING = 1 << 20


class Letters:
    """Counts what it is asked to encode, and fails when two ask at once."""

    scripts: frozenset[str] | None = None

    def __init__(self, seconds: float = 0.0) -> None:
        self.encoded = 0
        self._seconds = seconds
        self._busy = threading.Lock()

    def prepare(self, texts: Sequence[str], *, query: bool) -> list[Prepared]:
        rows = [np.array([0, *map(ord, text), 1], np.int32) for text in texts]
        return [Prepared(row, row > 1) for row in rows]

    def forward(self, rows: Sequence[NDArray[np.int32]]) -> list[NDArray[np.float16]]:
        assert self._busy.acquire(blocking=False), "two passes at once"
        self.encoded += len(rows)
        time.sleep(self._seconds * len(rows))
        self._busy.release()
        return [np.eye(DIMENSION, dtype=np.float16)[row] for row in rows]

    def is_word(self, token: int) -> bool:
        return chr(token).isalnum()


def reranker(encoder: Letters | None = None, cache_bytes: int = EVERYTHING) -> LateInteraction:
    return LateInteraction(encoder or Letters(), name="letters", cache_bytes=cache_bytes)


def test_a_score_is_the_weighted_share_of_the_query_that_is_matched() -> None:
    scores = reranker().rerank("ab!", passages(["a", "b", "ab", "xyz", ""])).scores
    # Two of five hold each letter, so that both weigh half; punctuation weighs nothing.
    assert scores == pytest.approx([0.5, 0.5, 1.0, 0.0, 0.0])


def test_a_neighbour_among_the_candidates_counts_by_half_and_by_its_side() -> None:
    pool = [Passage("ab"), Passage("x", before=0), Passage("y", after=0), Passage("z")]
    scores = reranker().rerank("ab", pool).scores
    assert scores == pytest.approx([1.0, BEFORE / 2, AFTER / 2, 0.0])


def test_what_a_passage_says_itself_is_not_lowered_by_its_neighbours() -> None:
    pool = [Passage("ab", before=1), Passage("a")]
    assert reranker().rerank("ab", pool).scores[0] == pytest.approx(1.0)


@settings(deadline=None)
@given(
    texts=st.lists(st.text("abcdef !", max_size=6), min_size=1, max_size=8),
    query=st.text("abcdef?", max_size=5),
    data=st.data(),
)
def test_neighbours_only_raise_scores(texts: list[str], query: str, data: st.DataObject) -> None:
    place = st.none() | st.integers(0, len(texts) - 1)
    pool = [Passage(text, data.draw(place), data.draw(place)) for text in texts]
    alone = reranker().rerank(query, passages(texts)).scores
    beside = reranker().rerank(query, pool).scores
    assert all(0.0 <= one <= two + 1e-6 <= 1.0 + 1e-5 for one, two in zip(alone, beside, strict=True))


def test_a_neighbour_that_was_not_reached_does_not_count() -> None:
    own = [np.array([0.1], np.float32)]
    pool = [Passage("a", after=1), Passage("b")]
    assert with_neighbours(own, np.ones(1, np.float32), pool) == pytest.approx([0.1])


def test_a_text_that_happens_to_be_known_changes_nothing_for_its_neighbours() -> None:
    pool = [Passage("x"), Passage("y", before=0)]
    fresh, knowing = reranker(), reranker()
    knowing.rerank("ab", passages(["ab", "a", "b"]))
    assert knowing.rerank("ab", pool).scores == fresh.rerank("ab", pool).scores


def test_a_repeated_question_encodes_nothing() -> None:
    encoder = Letters()
    first = reranker(encoder)
    pool = passages([f"text {number}" for number in range(50)])
    scores = first.rerank("question", pool).scores
    before = encoder.encoded
    assert first.rerank("question", pool).scores == scores
    assert encoder.encoded == before


def test_neighbours_are_not_encoded_for_their_own_sake() -> None:
    encoder = Letters()
    first = reranker(encoder)
    before = encoder.encoded
    first.rerank("question", [Passage(f"text {n}", n - 1 if n else None, n + 1 if n < 9 else None) for n in range(10)])
    assert encoder.encoded - before == 11


@settings(deadline=None, max_examples=50)
@given(
    questions=st.lists(st.tuples(st.text("abcd", min_size=1, max_size=4), st.permutations(range(8))), max_size=8),
    room=st.integers(0, 6),
)
def test_scores_do_not_depend_on_what_the_cache_has_kept(questions: list[tuple[str, list[int]]], room: int) -> None:
    texts = [chr(ord("a") + number % 4) * (1 + number) for number in range(8)]
    entry = DIMENSION * 2 * 4
    bounded, unbounded, none = reranker(cache_bytes=room * entry), reranker(), reranker(cache_bytes=0)
    for query, order in questions:
        pool = [Passage(texts[place], before=number - 1 if number else None) for number, place in enumerate(order)]
        scores = [one.rerank(query, pool).scores for one in (bounded, unbounded, none)]
        assert scores[0] == scores[1] == scores[2]
        assert bounded._cache.nbytes <= room * entry
        assert none._cache.nbytes == 0


def test_threads_get_the_scores_of_a_single_caller_while_the_cache_evicts() -> None:
    encoder = Letters()
    crowded = reranker(encoder, cache_bytes=20 * DIMENSION * 2)
    questions = [("abc"[number % 3] * 2, passages([f"{letter} {number}" for letter in "abcd"])) for number in range(60)]
    alone = [reranker().rerank(query, pool).scores for query, pool in questions]
    with ThreadPoolExecutor(8) as threads:
        together = list(threads.map(lambda one: crowded.rerank(*one).scores, questions))
    assert together == alone
    assert crowded._cache.nbytes <= 20 * DIMENSION * 2


def test_callers_at_once_keep_their_deadlines_on_a_slow_model() -> None:
    slow = reranker(Letters(seconds=0.004))
    pools = [passages([f"caller {caller} text {number}" for number in range(50)]) for caller in range(4)]

    def ask(pool: list[Passage]) -> tuple[float, list[float | None]]:
        began = time.monotonic()
        scores = slow.rerank("question", pool, deadline=began + 0.4).scores
        return time.monotonic() - began, scores

    with ThreadPoolExecutor(4) as threads:
        answers = list(threads.map(ask, pools))
    assert max(took for took, _ in answers) < 0.8  # 200 texts take as long; a pass of 16 takes 64 ms
    reached = [sum(score is not None for score in scores) for _, scores in answers]
    assert sum(reached) < 200
    assert all(None not in scores[:count] for (_, scores), count in zip(answers, reached, strict=True))


def test_a_query_or_text_without_tokens_is_similar_to_nothing() -> None:
    assert reranker().rerank("", passages(["a", ""])).scores == [0.0, 0.0]
    assert similarities(np.ones((2, 3), np.float32), np.empty((0, 3), np.float16)).tolist() == [0.0, 0.0]
