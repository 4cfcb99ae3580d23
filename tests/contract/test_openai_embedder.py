"""The HTTP embedder against a local service: what it halves, what it refuses, what it never returns."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest

from embedding_service import Answer, Service, answer_for, running_service
from producers.errors import EmbedderUnavailable, ModelError, PoisonError, SettingsError
from producers.settings import Settings
from workers.embedding.hashing import HashingEmbedder
from workers.embedding.openai_http import OpenAIEmbedder
from workers.embedding.registry import load_embedder

pytestmark = pytest.mark.contract


@pytest.fixture(scope="module")
def module_service() -> Iterator[Service]:
    with running_service() as service:
        yield service


@pytest.fixture
def service(module_service: Service) -> Iterator[Service]:
    module_service.sizes.clear()
    yield module_service
    module_service.behave = lambda texts: None


@pytest.fixture
def openai(service: Service) -> Iterator[OpenAIEmbedder]:
    embedder = OpenAIEmbedder("tiny", Settings(embedder_url=service.url, embedder_api_key="secret"))
    service.sizes.clear()
    yield embedder
    embedder.close()


def test_a_service_without_a_url_is_refused_by_the_setting_name():
    with pytest.raises(SettingsError, match="SCOPE_RECALL_EMBEDDER_URL"):
        load_embedder("openai:tiny", Settings())


def test_a_service_gets_the_key_and_large_batches_in_parts(openai, service):
    vectors = openai.embed_passages([f"text {number}" for number in range(150)])
    assert service.sizes == [64, 64, 22]
    assert service.authorization == "Bearer secret"
    expected = HashingEmbedder().embed_passages([f"text {number}" for number in range(150)])
    np.testing.assert_allclose(vectors, expected, atol=1e-6)


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


def with_first(value: list[float]) -> Callable[[list[str]], Answer]:
    def behave(texts: list[str]) -> Answer:
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
