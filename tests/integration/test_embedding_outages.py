"""An embedding service that fails, behind the real path: what waits, what is stored, what becomes a dead letter."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from embedding_service import Answer, Service, answer_for, running_service
from producers.settings import Settings
from query.question import Question
from query.recall import Recaller
from stepped import Stepped, turn
from workers.dead_letters import DeadLetters
from workers.ledger import Ledger
from workers.runtime import Runtime
from workers.status import gather_status
from workers.stores.scope import Scope

pytestmark = pytest.mark.integration

BAD = "the password is Xk7-Tango"


@pytest.fixture
def service() -> Iterator[Service]:
    with running_service() as service:
        yield service


@pytest.fixture
def make(shared_settings: Settings, service: Service, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Stepped]:
    """Builds a system over the service, whose worker tries again after milliseconds."""
    fixed = {"embedder": "openai:m", "embedder_url": service.url, "batch_wait": 0.5, "job_timeout": 40}

    def build(**changes: Any) -> Stepped:
        system = Stepped(shared_settings.model_copy(update=fixed | changes))
        monkeypatch.setattr("workers.jobs.FIRST_WAIT", 0.01)  # not before RQ has its prefix
        monkeypatch.setattr("workers.jobs.LONGEST_WAIT", 0.05)
        service.sizes.clear()
        return system

    return build


def vector_for(texts: list[str], bad: str, vector: list[float]) -> Answer:
    """`vector` for the text that holds `bad`, and the right one for all others."""
    answer = answer_for(texts)
    for item in answer["data"]:
        if bad in texts[item["index"]]:
            item["embedding"] = vector
    return 200, answer, {}


def all_nan(texts: list[str]) -> Answer:
    return 200, {"data": [{"embedding": [float("nan")] * 64} for _ in texts]}, {}


def letters_of(system: Stepped) -> list[tuple[int | None, str]]:
    return [(letter.turn_index, letter.reason) for letter in DeadLetters(system.client, system.settings).all()]


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (
            (429, {"error": {"type": "rate_limit_exceeded"}}, {"retry-after": "0.02"}),
            r"HTTP 429 \(rate_limit_exceeded\)",
        ),
        ((503, b"<html>overloaded</html>", {}), "HTTP 503"),
        ((500, {"error": "internal"}, {}), "HTTP 500.*fails on every text"),
        ((401, {"error": {"code": "invalid_api_key"}}, {}), "invalid_api_key.*check the URL, the key"),
        ((200, b"<html>maintenance</html>", {}), "not JSON"),
        (None, "RemoteProtocolError"),
    ],
    ids=["429", "503", "500", "401", "html", "cut off"],
)
def test_a_service_that_fails_for_a_while_delays_loses_nothing_and_is_shown_meanwhile(
    make: Callable[..., Stepped], service: Service, answer: Answer | None, said: str
) -> None:
    system = make()
    degraded: list[str] = []

    def behave(texts: list[str]) -> Answer | None:
        failing = len(service.sizes) < 14
        service.cut_answers = failing and answer is None
        if len(service.sizes) in (12, 13):  # a text and the probe may take turns
            degraded.extend(gather_status(system.settings)["degraded"])
        return answer if failing else None

    service.behave = behave
    system.push(*[turn(f"turn {n}", n) for n in range(20)])
    system.settle()
    assert system.counts() == (20, 20, 20)
    assert system.left() == (0, 0)
    assert letters_of(system) == []
    assert system.client.hget(system.keys.counters, "redelivered") is None, "waiting is no delivery"
    assert any(re.search(f"a worker waits and tries again: .*{said}", line) for line in degraded)


def test_a_service_that_is_gone_and_comes_back_loses_nothing(
    make: Callable[..., Stepped], service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    system = make()
    embedder: Any = system.pipeline.active.embedder
    waits: list[float] = []

    def come_back(_: Runtime, seconds: float) -> None:
        if seconds == 0:  # a look at whether it is to stop
            return
        waits.append(seconds)
        if len(waits) == 3:
            assert "ConnectError" in "".join(gather_status(system.settings)["degraded"])
            embedder._url = service.url + "embeddings"

    monkeypatch.setattr(Runtime, "wait", come_back)
    embedder._url = "http://127.0.0.1:9/v1/embeddings"
    system.push(turn("hello"))
    system.settle()
    assert system.counts() == (1, 1, 1)
    assert waits == [0.01, 0.02, 0.04]


OPENAI_400 = {"error": {"message": "too many inputs", "type": "invalid_request_error", "param": None, "code": None}}
VLLM_400 = {"object": "error", "message": "too many", "type": "BadRequestError", "param": None, "code": 400}
TEI_413 = {"error": "batch size 64 > maximum allowed batch size 10", "error_type": "Validation"}
LLAMA_500 = {"error": {"code": 500, "message": "increase the physical batch size", "type": "server_error"}}


@pytest.mark.parametrize(
    ("code", "body"),
    [(400, OPENAI_400), (400, VLLM_400), (413, TEI_413), (422, TEI_413), (500, LLAMA_500)],
    ids=["OpenAI", "vLLM", "TEI", "older TEI", "llama.cpp"],
)
def test_a_service_that_refuses_a_batch_size_gets_halves_and_everything_is_stored(
    make: Callable[..., Stepped], service: Service, code: int, body: dict[str, Any]
) -> None:
    service.behave = lambda texts: (code, body, {}) if len(texts) > 10 else None
    system = make()
    system.push(*[turn(f"turn {n}", n) for n in range(256)])
    system.settle()
    assert system.counts() == (256, 256, 256)
    assert letters_of(system) == []


def test_a_quota_smaller_than_a_batch_is_waited_for_and_no_text_is_embedded_twice(
    make: Callable[..., Stepped], service: Service
) -> None:
    system = make()
    quota = 70
    left = [quota]
    embedded: list[str] = []

    def behave(texts: list[str]) -> Answer | None:
        if left[0] < len(texts):
            left[0] = quota
            return 429, {}, {"retry-after": "0.01"}
        left[0] -= len(texts)
        embedded.extend(texts)
        return None

    service.behave = behave
    system.push(*[turn(f"turn {n}", n) for n in range(256)])
    system.settle()
    assert system.counts() == (256, 256, 256)
    assert sorted(embedded) == sorted(f"turn {n}" for n in range(256))


@pytest.mark.parametrize(
    ("behave", "reason"),
    [
        (
            lambda texts: (400, {"error": {"message": BAD, "type": "too_long"}}, {}) if BAD in texts else None,
            r"PoisonError: embedding service .* refuses a text of 25 characters: HTTP 400 \(too_long\)",
        ),
        (
            lambda texts: vector_for(texts, BAD, [float("nan")] * 64),
            "PoisonError: .* a zero or non-finite vector for a text of 25 characters",
        ),
        (
            lambda texts: vector_for(texts, BAD, [1.0] * 32),
            "PoisonError: .* a vector of dimension 32 where 64 was due for a text of 25 characters",
        ),
    ],
    ids=["refused", "NaN", "dimension"],
)
def test_one_text_that_a_service_cannot_embed_is_a_dead_letter_alone_and_stored_once_it_can(
    make: Callable[..., Stepped], service: Service, behave: Callable[[list[str]], Answer | None], reason: str
) -> None:
    system = make()
    service.behave = behave
    system.push(*[turn(f"turn {n}", n) for n in range(255)], turn(BAD, 255))
    system.settle()
    assert system.counts() == (255, 255, 255)
    assert system.left() == (0, 0)
    ((index, said),) = letters_of(system)
    assert index == 255
    assert re.match(reason, said), said
    assert "Tango" not in said
    assert sum(service.sizes) <= 256 + 2 * 64 + 2, "its request in halves, the probe and once more; nothing else twice"
    service.behave = lambda texts: None
    DeadLetters(system.client, system.settings).replay()
    system.settle()
    assert system.counts() == (256, 256, 256)
    assert letters_of(system) == []


@pytest.mark.parametrize(
    ("behave", "said"),
    [
        (lambda texts: (400, {"error": {"type": "model_not_loaded"}}, {}), "model_not_loaded"),
        (lambda texts: (200, {"data": [{"embedding": [1.0, 2.0]}] * len(texts)}, {}), "dimension 2 where 64 was due"),
        (all_nan, "zero or non-finite"),
        (lambda texts: (200, {"data": []}, {}), "0 vectors"),
    ],
    ids=["refuses all", "another model", "NaN", "nothing"],
)
def test_a_service_that_is_wrong_for_good_makes_no_dead_letter_of_a_good_turn(
    make: Callable[..., Stepped],
    service: Service,
    monkeypatch: pytest.MonkeyPatch,
    behave: Callable[[list[str]], Answer | None],
    said: str,
) -> None:
    system = make(max_deliveries=2)
    with monkeypatch.context() as patched:
        patched.setattr("workers.jobs.WAITING_SHARE", 0.0)
        service.behave = behave
        system.push(*[turn(f"turn {n}", n) for n in range(20)])
        for _ in range(3):  # one more than deliveries are allowed
            system.step()
            system.work()
            assert said in "".join(gather_status(system.settings)["degraded"])
    assert letters_of(system) == []
    assert system.left() == (20, 20)
    service.behave = lambda texts: None
    system.settle()
    assert system.counts() == (20, 20, 20)


def test_a_text_on_which_a_service_fails_each_time_is_tried_up_to_the_limit_and_holds_nobody_up(
    make: Callable[..., Stepped], service: Service
) -> None:
    system = make(max_deliveries=2, lease=1.0)
    service.behave = lambda texts: (500, LLAMA_500, {}) if BAD in texts else None
    system.push(*[turn(f"turn {n}", n) for n in range(10)], turn(BAD, 10))
    system.settle()
    assert system.counts() == (10, 10, 10)
    assert system.left() == (1, 1)
    assert Ledger(system.client, system.settings, "live", "worker").failure_of(_pending(system))
    for _ in range(2):
        system.abandon()
        system.settle()
    ((index, reason),) = letters_of(system)
    assert index == 10
    assert reason.endswith("fails on a text of 25 characters: HTTP 500 (server_error) on delivery 2")


def _pending(system: Stepped) -> str:
    (row,) = system.client.xpending_range(system.keys.stream("live"), "ingest", "-", "+", 10)
    return str(row["message_id"].decode())


def test_a_turn_waits_for_its_vector_and_is_found_by_its_words_and_its_meaning_from_then_on(
    make: Callable[..., Stepped], service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    system = make()
    system.push(turn("the heron stands in the reeds", 0))
    system.settle()
    with monkeypatch.context() as patched:
        patched.setattr("workers.jobs.WAITING_SHARE", 0.0)
        service.behave = lambda texts: (503, {}, {})
        system.push(turn("the kingfisher dives", 1))
        system.step()
        system.work()
    recaller = Recaller.open(system.settings)
    answer = recaller.recall(Question("kingfisher heron", Scope("default")))
    assert [hit.turn_index for hit in answer.hits] == [0], "what was stored is found by its words without the service"
    assert "HTTP 503" in answer.degraded[0]
    status = gather_status(system.settings)
    assert status["streams"]["live"]["length"] == 1
    assert "HTTP 503" in "".join(status["degraded"])
    service.behave = lambda texts: None
    system.settle()
    assert recaller.recall(Question("kingfisher", Scope("default"))).hits[0].turn_index == 1
