"""What is peculiar to the HTTP reranker: dialects, failures, deadlines and request sizes, against a real server."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from producers.errors import ModelError, RetryableError
from producers.settings import Settings
from query.reranking.http import HttpReranker
from rerank_passages import passages
from rerank_server import RerankServer, running_server

pytestmark = pytest.mark.contract

TEXTS = ["copper garden", "violin lemon", "rocket pencil", "winter harbour"]


@pytest.fixture
def server() -> Iterator[RerankServer]:
    with running_server() as server:
        yield server


@pytest.fixture
def http(server: RerankServer) -> Iterator[HttpReranker]:
    reranker = HttpReranker(Settings(reranker_url=server.url))
    yield reranker
    reranker.close()


@pytest.mark.parametrize("dialect", ["documents", "texts"])
def test_the_endpoint_is_spoken_to_in_its_dialect(server: RerankServer, dialect: str) -> None:
    server.dialect = dialect
    reranker = HttpReranker(Settings(reranker_url=server.url, reranker_api_key="k"), "some-model")
    for _ in range(2):
        scores = reranker.rerank("violin", passages(TEXTS)).scores
        assert scores == [0.0, 1.0, 0.0, 0.0]
    assert [dialect in request for request in server.requests][-2:] == [True, True]
    assert server.requests[-1]["model"] == "some-model"
    assert server.keys[-1] == "Bearer k"
    reranker.close()


@pytest.mark.parametrize(
    ("status", "answer", "expected"),
    [
        (429, None, RetryableError),
        (500, None, RetryableError),
        (503, None, RetryableError),
        (401, None, ModelError),
        (404, None, ModelError),
        (200, {"results": [{"index": 0, "relevance_score": 1}]}, ModelError),
        (200, {"results": [{"index": 0, "relevance_score": float("nan")}]}, ModelError),
        (200, {"error": "no"}, ModelError),
        (200, [1, 2], ModelError),
        (200, "no", ModelError),
    ],
)
def test_an_endpoint_that_fails_gives_an_error_of_ours(
    server: RerankServer, http: HttpReranker, status: int, answer: object, expected: type[Exception]
) -> None:
    server.status, server.answer = status, answer
    with pytest.raises(expected, match="reranker http://127"):
        http.rerank("violin", passages(TEXTS))


def test_an_endpoint_that_is_not_there_is_retryable() -> None:
    reranker = HttpReranker(Settings(reranker_url="http://127.0.0.1:9/rerank"))
    with pytest.raises(RetryableError, match="cannot be reached"):
        reranker.rerank("violin", passages(TEXTS))
    reranker.close()


def test_an_endpoint_slower_than_the_deadline_reaches_nothing(server: RerankServer, http: HttpReranker) -> None:
    server.delay = 2.0
    began = time.monotonic()
    assert http.rerank("violin", passages(TEXTS), deadline=began + 0.1).scores == [None] * len(TEXTS)
    assert time.monotonic() - began < 1.5


def test_many_texts_are_sent_in_requests_a_server_takes(server: RerankServer, http: HttpReranker) -> None:
    texts = [
        f"{word} {number}"
        for number in range(10)
        for word in ("violin", "lemon", "copper", "winter", "rocket", "garden", "pencil", "harbour")
    ]
    scores = http.rerank("violin", passages(texts)).scores
    assert scores == [float("violin" in text) for text in texts]
    assert [len(request["documents"]) for request in server.requests] == [32, 32, 16]
