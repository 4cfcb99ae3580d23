"""The HTTP embedder against a local service: what it halves, what it refuses, what it never returns."""

from __future__ import annotations

import gzip
import json
import threading
import time
import traceback
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from embedding_service import Answer, Service, answer_for, running_service
from producers.errors import EmbedderUnavailable, ModelError, PoisonError, SettingsError
from producers.settings import Settings
from workers.embedding import openai_http
from workers.embedding.hashing import HashingEmbedder
from workers.embedding.openai_http import OpenAIEmbedder
from workers.embedding.port import PartlyEmbedded
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
    module_service.cut_answers = False
    module_service.seconds_a_byte = 0.0


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


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (400, PoisonError),
        (413, PoisonError),
        (422, PoisonError),
        (500, EmbedderUnavailable),
        (424, EmbedderUnavailable),
    ],
)
def test_a_text_that_a_service_fails_on_alone_is_named_and_the_others_are_embedded(openai, service, code, error):
    service.behave = lambda texts: (code, {"error": {"type": "too_long"}}, {}) if "bad" in texts else None
    with pytest.raises(PartlyEmbedded) as caught:
        openai.embed_passages(["good", "bad", "fine"])
    assert caught.value.stopped is None
    assert [(at, type(one)) for at, one in caught.value.errors.items()] == [(1, error)]
    assert f"a text of 3 characters: HTTP {code} (too_long)" in str(caught.value.errors[1])
    expected = HashingEmbedder().embed_passages(["good", "fine"])
    np.testing.assert_allclose(caught.value.vectors[[0, 2]], expected, atol=1e-6)
    assert np.isnan(caught.value.vectors[1]).all()
    with pytest.raises(error, match="a text of 3 characters"):
        openai.embed_query("bad")
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
        (lambda texts: (200, [], {}), EmbedderUnavailable, "no vectors for a text"),
        (lambda texts: (200, {"data": []}, {}), EmbedderUnavailable, "0 vectors for a text"),
        (lambda texts: (200, {"data": [1] * len(texts)}, {}), EmbedderUnavailable, "missing"),
        (
            lambda texts: (200, {"data": [{"index": 1, "embedding": [1.0] * 64}] * len(texts)}, {}),
            EmbedderUnavailable,
            "missing",
        ),
        (with_first([1.0]), ModelError, "where 64 was due"),
        (with_first([[1.0] * 64]), EmbedderUnavailable, "not numbers"),
        (with_first([10**400] * 64), EmbedderUnavailable, "not numbers"),
        (with_first(["x"] * 64), EmbedderUnavailable, "not numbers"),
        (with_first([float("nan")] * 64), EmbedderUnavailable, "zero or non-finite"),
        (with_first([0.0] * 64), EmbedderUnavailable, "zero or non-finite"),
        (lambda texts: (200, {"data": [{"embedding": [1.0, 2.0]}] * 2}, {}), ModelError, "where 64 was due"),
    ],
    ids="html list empty items index uneven nested huge strings nan zero dimension".split(),
)
def test_a_service_whose_answers_are_never_usable_is_at_fault_and_no_text_is(openai, service, behave, error, message):
    service.behave = behave
    with pytest.raises(error, match=message):
        openai.embed_passages(["one", "two"])


def test_a_service_that_is_away_is_unavailable_at_load_and_later(service, openai):
    with pytest.raises(EmbedderUnavailable, match="ConnectError"):
        load_embedder("openai:tiny", Settings(embedder_url="http://127.0.0.1:9/v1"))
    service.behave = lambda texts: (400, {"error": "no such model"}, {})
    with pytest.raises(ModelError, match=r"openai:tiny.*no such model"):
        load_embedder("openai:tiny", Settings(embedder_url=service.url))


@pytest.mark.parametrize(
    "value", [[float("nan")] * 64, [0.0] * 64, [1.0], None], ids=["nan", "zero", "short", "no vector"]
)
def test_one_bad_vector_is_never_returned_and_the_others_are(openai, service, value):
    def behave(texts: list[str]) -> Answer | None:
        answer = answer_for(texts)
        for item in answer["data"]:
            if texts[item["index"]] == "bad":
                item["embedding"] = value
        return 200, answer, {}

    service.behave = behave
    texts = [f"text {number}" for number in range(40)]
    with pytest.raises(PartlyEmbedded) as caught:
        openai.embed_passages([*texts, "bad"])
    assert list(caught.value.errors) == [40]
    assert caught.value.errors[40].__class__ is (EmbedderUnavailable if value is None else PoisonError)
    np.testing.assert_allclose(caught.value.vectors[:40], HashingEmbedder().embed_passages(texts), atol=1e-6)
    if value == [1.0]:
        assert "of dimension 1 where 64 was due for a text of 3 characters" in str(caught.value.errors[40])
        with pytest.raises(PoisonError, match="of dimension 1 where 64 was due"):
            openai.embed_query("bad")


def test_a_service_that_skips_a_text_or_counts_wrong_gets_them_one_by_one(openai, service):
    def behave(texts: list[str]) -> Answer:
        items = [{"index": 0, "embedding": item["embedding"]} for item in answer_for(texts)["data"]]
        return 200, {"data": items}, {}

    service.behave = behave
    texts = [f"text {number}" for number in range(5)]
    np.testing.assert_allclose(openai.embed_passages(texts), HashingEmbedder().embed_passages(texts), atol=1e-6)


def test_what_was_embedded_before_a_service_stops_is_not_lost(openai, service):
    service.behave = lambda texts: (429, {}, {"retry-after": "3"}) if len(service.sizes) > 2 else None
    texts = [f"text {number}" for number in range(200)]
    with pytest.raises(PartlyEmbedded) as caught:
        openai.embed_passages(texts)
    assert isinstance(caught.value.stopped, EmbedderUnavailable)
    assert caught.value.stopped.retry_after == 3.0
    assert np.isfinite(caught.value.vectors).all(axis=1).tolist() == [True] * 128 + [False] * 72


def test_a_service_too_slow_for_a_batch_gets_a_smaller_one_and_later_more_again(openai, service, monkeypatch):
    monkeypatch.setattr(openai_http, "ANSWER_SECONDS", 0.3)
    slow = OpenAIEmbedder("tiny", Settings(embedder_url=service.url))
    released = threading.Event()

    def behave(texts: list[str]) -> None:
        if len(texts) > 16:
            released.wait(20)

    service.behave = behave
    texts = [f"text {number}" for number in range(64)]
    for _ in range(2):
        with pytest.raises(EmbedderUnavailable, match="ReadTimeout"):
            slow.embed_passages(texts)
    service.sizes.clear()
    service.behave = lambda texts: None
    released.set()
    slow.embed_passages(texts)
    assert service.sizes[:3] == [16, 17, 18]
    slow.close()


@pytest.mark.parametrize("code", [200, 503])
def test_an_answer_that_trickles_is_given_up_like_one_that_never_comes(service, monkeypatch, code):
    monkeypatch.setattr(openai_http, "ANSWER_SECONDS", 0.5)
    slow = OpenAIEmbedder("tiny", Settings(embedder_url=service.url))
    service.behave = lambda texts: (code, answer_for(texts), {})
    service.seconds_a_byte = 0.02  # never silent for long; some 30 s for all of a vector
    started = time.monotonic()
    with pytest.raises(EmbedderUnavailable, match=r"ReadTimeout$"):
        slow.embed_passages(["one", "two"])
    assert time.monotonic() - started < 5
    service.seconds_a_byte = 0.0
    service.behave = lambda texts: None
    service.sizes.clear()
    slow.embed_passages(["one", "two"])
    assert service.sizes == [1, 1], "in smaller parts, as after any other time-out"
    slow.close()


def test_a_compressed_answer_is_read(openai, service):
    service.behave = lambda texts: (
        200,
        gzip.compress(json.dumps(answer_for(texts)).encode()),
        {"content-encoding": "gzip"},
    )
    np.testing.assert_allclose(openai.embed_query("one"), HashingEmbedder().embed_passages(["one"]), atol=1e-6)
    service.behave = lambda texts: (200, b"no gzip", {"content-encoding": "gzip"})
    with pytest.raises(EmbedderUnavailable, match=r"DecodingError$"):
        openai.embed_query("one")


ECHOED = "the launch code is Xk7-Tango"


@pytest.mark.parametrize("code", [200, 302, 400, 401, 404, 413, 418, 422, 424, 429, 500, 503])
@pytest.mark.parametrize(
    "body",
    [
        ECHOED.encode(),
        {"error": {"message": f"cannot embed {ECHOED!r}", "type": ECHOED, "code": "Xk7-Tango", "param": [ECHOED]}},
        {"detail": [{"type": "string_type", "loc": ["input", 0], "msg": "bad", "input": ECHOED}]},
        {"data": [{"index": ECHOED, "embedding": [ECHOED]}]},
        {"object": "error", "message": ECHOED, "type": "BadRequestError", "code": 400},
    ],
    ids=["plain", "openai", "fastapi", "data", "vllm"],
)
def test_no_error_repeats_what_a_service_was_sent(openai, service, code, body):
    service.behave = lambda texts: (code, body, {}) if ECHOED in texts else None
    for call in (lambda: openai.embed_passages(["good", ECHOED]), lambda: openai.embed_query(ECHOED)):
        with pytest.raises((PartlyEmbedded, EmbedderUnavailable, ModelError, PoisonError)) as caught:
            call()
        errors = [caught.value, *getattr(caught.value, "errors", {}).values()]
        for error in errors:
            assert "Tango" not in "".join(traceback.format_exception(error))
            assert f"HTTP {code}" in str(error) or isinstance(error, PartlyEmbedded) or code == 200


def test_no_error_repeats_the_password_of_the_services_url(service):
    with pytest.raises(EmbedderUnavailable) as caught:
        load_embedder("openai:tiny", Settings(embedder_url="http://user:hunter2@127.0.0.1:9/v1"))
    assert "hunter2" not in str(caught.value)


def test_a_connection_closed_in_the_middle_of_an_answer_is_waited_for_and_not_quoted(openai, service):
    service.cut_answers = True
    with pytest.raises(EmbedderUnavailable, match=r"RemoteProtocolError$"):
        openai.embed_passages(["text"])
