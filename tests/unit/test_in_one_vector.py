"""Two embedders in one vector: the cosine is the weighted mean of theirs, and each reads only what it speaks."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from producers.scripts import foreign_scripts
from workers.embedding.hashing import HashingEmbedder
from workers.embedding.in_one_vector import InOneVector
from workers.embedding.port import Vectors

SHARE = 0.3
CENTRE = np.full(64, 0.02, np.float32)
ENGLISH = ["the heron waits at the weir", "a deploy failed", "where is the heron?", "x"]
CHINESE = ["苍鹭在堰边等待", "部署失败了", "昨天 deploy 失败了，证书过期"]


class Latin(HashingEmbedder):
    """Speaks one script, and remembers what it was given to read."""

    scripts = frozenset({"latin"})
    max_tokens = 20

    def __init__(self) -> None:
        super().__init__(16)
        self.read: list[str] = []

    def token_counter(self) -> Callable[[str], int]:
        return lambda text: len(text.split())

    def embed_passages(self, texts: Sequence[str]) -> Vectors:
        self.read += texts
        return super().embed_passages(texts)


class All(HashingEmbedder):
    """Speaks every script."""

    max_tokens = 50

    def token_counter(self) -> Callable[[str], int]:
        return len


@pytest.fixture
def first() -> Latin:
    return Latin()


@pytest.fixture
def both(first: Latin) -> InOneVector:
    return InOneVector(first, All(), centre=CENTRE, second_share=SHARE)


def second(texts: Sequence[str]) -> Vectors:
    moved = All().embed_passages(texts) - CENTRE
    vectors: Vectors = moved / np.linalg.norm(moved, axis=1, keepdims=True)
    return vectors


def test_the_cosine_is_the_weighted_mean_of_the_two_cosines(both: InOneVector) -> None:
    vectors = both.embed_passages(ENGLISH)
    asked = both.embed_query(ENGLISH[2])[0]
    one, two = Latin().embed_passages(ENGLISH), second(ENGLISH)
    expected = (1 - SHARE) * one @ one[2] + SHARE * two @ two[2]
    np.testing.assert_allclose(vectors @ asked, expected, atol=1e-6)


def test_of_a_text_in_another_script_the_second_decides_alone(both: InOneVector, first: Latin) -> None:
    vectors = both.embed_passages([*CHINESE, *ENGLISH])
    asked = both.embed_query(CHINESE[0])[0]
    two = second([*CHINESE, *ENGLISH])
    np.testing.assert_allclose(vectors[:3] @ asked, two[:3] @ two[0], atol=1e-6)
    # Across scripts nothing but the second can compare, by the part of the vector that it has.
    np.testing.assert_allclose(vectors[3:] @ asked, SHARE**0.5 * two[3:] @ two[0], atol=1e-6)
    assert first.read == ENGLISH, "the first reads only what it speaks"


@given(st.lists(st.sampled_from([*ENGLISH, *CHINESE]), max_size=6))
def test_every_vector_is_of_norm_one_and_in_its_place(texts: list[str]) -> None:
    both = InOneVector(Latin(), All(), centre=CENTRE, second_share=SHARE)
    vectors = both.embed_passages(texts)
    assert vectors.shape == (len(texts), both.dimension) == (len(texts), 80)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    for row, text in zip(vectors, texts, strict=True):
        np.testing.assert_allclose(row, both.embed_passages([text])[0], atol=1e-6)


@given(st.text(alphabet="ab 长的", max_size=80))
def test_what_fits_by_the_counter_fits_each_model_that_reads_it(text: str) -> None:
    both = InOneVector(Latin(), All(), centre=CENTRE, second_share=SHARE)
    fits = len(text) <= 50 and (bool(foreign_scripts(text, Latin.scripts)) or len(text.split()) <= 20)
    assert (both.token_counter()(text) <= both.max_tokens) == fits
    assert (both.max_tokens, both.scripts, both.name) == (20, None, "hashing-v1-16+hashing-v1")
