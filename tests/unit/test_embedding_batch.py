"""Embedding a batch: equal texts once, order kept, nothing stored that was not computed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from producers.errors import EmbedderUnavailable, ModelError, PoisonError
from workers.embedding.batch import NotEmbedded, Pace, VectorCache, embed_unique
from workers.embedding.hashing import HashingEmbedder
from workers.embedding.port import PartlyEmbedded, Vectors


class Recorder(HashingEmbedder):
    """Remembers what it was asked, and spoils its answers on request."""

    def __init__(self, spoil: Callable[[Vectors], Vectors] = lambda vectors: vectors) -> None:
        self.calls: list[list[str]] = []
        self._spoil = spoil

    def embed_passages(self, texts: Sequence[str]) -> Vectors:
        self.calls.append(list(texts))
        return self._spoil(super().embed_passages(texts))


@given(texts=st.lists(st.text(max_size=20), max_size=30))
def test_rows_are_those_of_embedding_one_by_one_in_the_given_order(texts):
    embedder = Recorder()
    vectors = embed_unique(embedder, texts)
    assert vectors.shape == (len(texts), 64)
    assert vectors.dtype == np.float32
    for text, vector in zip(texts, vectors, strict=True):
        np.testing.assert_allclose(vector, embedder.embed_query(text)[0], rtol=1e-6)


def test_equal_texts_are_embedded_once_and_long_texts_first():
    embedder = Recorder()
    vectors = embed_unique(embedder, ["ab", "a longer text", "ab", "中文字", "ab"])
    assert embedder.calls == [["a longer text", "中文字", "ab"]]
    assert (vectors[0] == vectors[2]).all()
    assert (vectors[0] == vectors[4]).all()


def test_texts_seen_before_come_from_the_cache_and_are_equal():
    embedder, cache = Recorder(), VectorCache()
    first = embed_unique(embedder, ["one", "two"], cache=cache)
    second = embed_unique(embedder, ["two", "three", "one"], cache=cache)
    assert embedder.calls[1:] == [["three"]]
    assert (second[[2, 0]] == first).all()


def test_nothing_is_asked_of_the_embedder_when_nothing_is_new():
    embedder, cache = Recorder(), VectorCache()
    embed_unique(embedder, ["one"], cache=cache)
    embed_unique(embedder, ["one"], cache=cache)
    assert embed_unique(embedder, [], cache=cache).shape == (0, 64)
    assert len(embedder.calls) == 1


def test_the_cache_forgets_the_least_recently_used_and_stays_bounded():
    embedder, cache = Recorder(), VectorCache(capacity=2)
    for texts in (["one"], ["two"], ["one"], ["three"]):
        embed_unique(embedder, texts, cache=cache)
    assert len(cache) == 2
    assert cache.get(embedder, "one") is not None
    assert cache.get(embedder, "two") is None


def test_a_batch_larger_than_the_cache_is_still_whole():
    vectors = embed_unique(Recorder(), list("abcdef"), cache=VectorCache(capacity=2))
    assert (vectors == embed_unique(Recorder(), list("abcdef"))).all()


def test_two_embedders_do_not_share_cached_vectors():
    cache, other = VectorCache(), Recorder()
    other.name = "another"
    embed_unique(Recorder(), ["one"], cache=cache)
    embed_unique(other, ["one"], cache=cache)
    assert other.calls == [["one"]]


def test_rows_are_normalised_whatever_the_embedder_gives():
    vectors = embed_unique(Recorder(lambda rows: rows * 7), ["one", "two"])
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=1e-6)


def first_row(value: float) -> Callable[[Vectors], Vectors]:
    def spoil(rows: Vectors) -> Vectors:
        rows[0] = value
        return rows

    return spoil


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (first_row(0.0), "1 of 2 vectors are zero or not finite"),
        (first_row(float("nan")), "1 of 2 vectors are zero or not finite"),
        (first_row(float("inf")), "1 of 2 vectors are zero or not finite"),
        (lambda rows: rows[:1], r"shape \(1, 64\) where \(2, 64\) was due"),
        (lambda rows: rows[:, :3], r"shape \(2, 3\) where \(2, 64\) was due"),
    ],
    ids=["zero", "nan", "inf", "too few", "wrong dimension"],
)
def test_vectors_that_cannot_be_used_are_refused_and_not_cached(spoil, message):
    cache = VectorCache()
    with pytest.raises(ModelError, match=message):
        embed_unique(Recorder(spoil), ["one", "two"], cache=cache)
    assert len(cache) == 0


@pytest.mark.parametrize(("seconds_a_text", "most"), [(0.5, 4), (3.0, 1), (0.001, 2000)])
def test_a_part_takes_the_embedder_two_seconds_or_is_one_text(seconds_a_text, most):
    texts = [f"{number:010}" for number in range(300)]
    now = [0.0]
    pace = Pace(lambda: now[0])
    sizes = []
    for part in pace.parts(texts, lambda: None):
        now[0] += seconds_a_text * len(part)
        sizes.append(len(part))
    assert sum(sizes) == len(texts)
    assert max(sizes) <= most
    assert len(next(pace.parts(texts, lambda: None))) == min(most, len(texts)), "its speed is known by now"


def test_the_work_can_be_stopped_before_any_part():
    embedder = Recorder()
    stops = iter([None, InterruptedError])

    def pause():
        if error := next(stops):
            raise error

    with pytest.raises(InterruptedError):
        embed_unique(embedder, ["a", "bb", "ccc"], parts=lambda texts: Pace().parts(texts, pause))
    assert embedder.calls == [["ccc"]]


def nan_for(word: str) -> Callable[[Sequence[str], Vectors], Vectors]:
    def spoil(texts: Sequence[str], rows: Vectors) -> Vectors:
        rows[[word in text for text in texts]] = np.nan
        return rows

    return spoil


class Scripted(Recorder):
    """Answers as `act` makes of the texts and their right vectors."""

    def __init__(self, act: Callable[[Sequence[str], Vectors], Vectors]) -> None:
        super().__init__()
        self._act = act

    def embed_passages(self, texts: Sequence[str]) -> Vectors:
        return self._act(texts, super().embed_passages(texts))


def test_texts_without_a_usable_vector_are_named_and_the_others_are_not_embedded_again():
    cache, embedder = VectorCache(), Scripted(nan_for("bad"))
    with pytest.raises(NotEmbedded) as caught:
        embed_unique(embedder, ["one", "bad", "two", "bad too"], cache=cache)
    assert {text: type(error) for text, error in caught.value.errors.items()} == {
        "bad": PoisonError,
        "bad too": PoisonError,
    }
    assert "of 7 characters is zero or not finite" in str(caught.value.errors["bad too"])
    embedder.calls.clear()
    embed_unique(embedder, ["one", "two"], cache=cache)
    assert embedder.calls == []


def test_what_an_embedder_gave_before_it_stopped_is_not_asked_for_again():
    def stop(texts: Sequence[str], rows: Vectors) -> Vectors:
        rows[2:] = np.nan
        raise PartlyEmbedded(rows, {}, EmbedderUnavailable("busy", retry_after=3))

    cache = VectorCache()
    with pytest.raises(EmbedderUnavailable, match="busy") as caught:
        embed_unique(Scripted(stop), ["longest one", "longer", "mid", "x"], cache=cache)
    assert caught.value.retry_after == 3
    rest = Recorder()
    embed_unique(rest, ["longest one", "longer", "mid", "x"], cache=cache)
    assert rest.calls == [["mid", "x"]]


@pytest.mark.parametrize("broken", [True, False])
def test_a_native_failure_is_the_embedders_when_it_fails_on_every_text(broken: bool):
    def crash(texts: Sequence[str], rows: Vectors) -> Vectors:
        if broken or "bad" in texts:
            raise RuntimeError("CUDA error")
        return rows

    with pytest.raises(ModelError if broken else RuntimeError, match="fails on every text" if broken else "CUDA"):
        embed_unique(Scripted(crash), ["good", "bad"])
