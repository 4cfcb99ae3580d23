"""The query service: a real server in its own process over a small real data dir, and the app for tables of bodies."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi.testclient import TestClient

from query.answer import Answer
from query.api.app import create_app
from query.question import Question
from query.recall import Recaller
from served import LOOPBACK, fill, served, settings_of
from system import Cli

pytestmark = pytest.mark.integration

PROBLEM = ["title", "status", "error"]
QUESTION = {"query": "which port does the proxy use?", "tenant": "acme"}


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    data_dir = tmp_path_factory.mktemp("api") / "data"
    fill(data_dir)
    return data_dir


@pytest.fixture(scope="module")
def client(filled: Path) -> Iterator[httpx.Client]:
    with served(filled) as client:
        yield client


@pytest.fixture(scope="module")
def app_client(filled: Path) -> Iterator[TestClient]:
    with TestClient(create_app(settings_of(filled)), LOOPBACK) as client:
        yield client


def test_the_process_is_healthy(client: httpx.Client) -> None:
    answer = client.get("/healthz")
    assert (answer.status_code, answer.json()) == (200, {"status": "ok"})


MANY = {
    "k": 1,
    "wide": 1,
    "explain": True,
    "exclude_sessions": ["food"],
    "neighbours": 1,
    "fold": False,
    "why": {"session_id": "desk", "turn_index": 0},
}
AS_OPTIONS = "-k 1 --wide 1 --explain --exclude-session food --neighbours 1 --no-fold --why desk:0".split()


@pytest.mark.parametrize("options", [{}, MANY], ids=["few", "many"])
def test_the_service_answers_what_the_command_answers(
    client: httpx.Client, filled: Path, options: dict[str, Any]
) -> None:
    answer = client.post("/v1/recall", json={**QUESTION, **options})
    assert answer.status_code == 200
    given = AS_OPTIONS if options else []
    said = Cli(filled).run("recall", QUESTION["query"], "--tenant", "acme", "--json", *given).json
    found = answer.json()
    assert {hit["tenant"] for hit in found["hits"]} == {"acme"}
    assert found.pop("timings_ms").keys() == said.pop("timings_ms").keys()
    assert found == said
    assert [one["verdict"] for one in found.get("why", [])] == (["outside the wide pass"] if options else [])


def test_the_answer_has_the_fields_that_are_described(app_client: TestClient) -> None:
    schemas = app_client.get("/openapi.json").json()["components"]["schemas"]
    found = app_client.post("/v1/recall", json={**QUESTION, **MANY}).json()
    for name, one in (("RecallAnswer", found), ("HitAnswer", found["hits"][0]), ("WhyAnswer", found["why"][0])):
        assert one.keys() == schemas[name]["properties"].keys()


def test_k_is_not_bound_by_a_smaller_wide(app_client: TestClient) -> None:
    assert app_client.post("/v1/recall", json={**QUESTION, "wide": 1}).status_code == 200


def test_what_a_question_waits_in_line_is_taken_off_its_deadline(filled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left: list[int] = []
    answer = Recaller.recall

    def slow(recaller: Recaller, question: Question) -> Answer:
        left.append(question.deadline_ms)
        time.sleep(0.4)
        return answer(recaller, question)

    monkeypatch.setattr(Recaller, "recall", slow)
    settings = settings_of(filled).model_copy(update={"api_recalls": 1})
    with TestClient(create_app(settings), LOOPBACK) as client, ThreadPoolExecutor(3) as callers:
        asked = [callers.submit(client.post, "/v1/recall", json={**QUESTION, "deadline_ms": 700}) for _ in range(3)]
        answers = sorted((one.result() for one in asked), key=lambda one: one.status_code)
    assert [one.status_code for one in answers] == [200, 200, 429]
    assert "deadline_ms = 700" in answers[2].json()["error"]
    assert int(answers[2].headers["retry-after"]) >= 1
    assert left[0] > 600
    assert 0 < left[1] < 350


def test_many_callers_at_once_each_get_their_own_answer(client: httpx.Client) -> None:
    def ask(tenant: str) -> set[str]:
        answer = client.post("/v1/recall", json={"query": "the proxy's port", "tenant": tenant})
        return {hit["tenant"] for hit in answer.json()["hits"]}

    tenants = ["acme", "other"] * 20
    with ThreadPoolExecutor(12) as callers:
        assert list(callers.map(ask, tenants)) == [{tenant} for tenant in tenants]


def test_it_starts_before_anything_is_stored_and_answers_once_something_is(tmp_path: Path) -> None:
    with served(tmp_path / "data", end=signal.SIGINT) as client:
        answer = client.post("/v1/recall", json=QUESTION)
        assert answer.status_code == 503
        assert "nothing has been stored yet" in answer.json()["error"]
        fill(tmp_path / "data")
        assert client.post("/v1/recall", json=QUESTION).json()["hits"][0]["session_id"] == "ops"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"query": ...}, "query: missing"),
        ({"tenant": ...}, "tenant: missing"),
        ({"query": " "}, "query: empty"),
        ({"query": "x" * 100_001}, "query: 100,001 characters, over the limit of 100,000"),
        ({"query": 7}, "query: input should be a valid string, got 7"),
        ({"query": "lone \ud800"}, "query: input should be a valid string"),
        ({"lone \ud800": 1}, "body: input should be a valid string"),
        ({"tenant": "lone \ud800"}, "tenant: input should be a valid string"),
        ({"sessions": ["lone \ud800"]}, "sessions.0: input should be a valid string"),
        ({"tenant": ""}, "tenant: string should have at least 1 character"),
        ({"tenant": "t" * 257}, "tenant: 257 characters, over the limit of 256"),
        ({"sessions": "ops"}, "sessions: input should be a valid tuple, got 'ops'"),
        ({"tags": ["x", 1]}, "tags.1: input should be a valid string, got 1"),
        ({"roles": ["robot"]}, "roles.0: input should be 'user', 'assistant', 'system' or 'tool', got 'robot'"),
        ({"since": "2026-01-31T09:00:00"}, "since: '2026-01-31T09:00:00' has no time zone"),
        ({"until": "yesterday"}, "until: input should be a valid datetime"),
        ({"since": "2026-02-01T00:00:00Z", "until": "2026-01-01T00:00:00Z"}, "since 2026-02-01T00:00:00+00:00 is not"),
        ({"k": 0}, "k: input should be greater than or equal to 1, got 0"),
        ({"k": True}, "k: input should be a valid integer, got True"),
        ({"why": {"session_id": "ops"}}, "why.turn_index: missing"),
        ({"reranker": "none"}, "reranker: unknown field; /openapi.json lists them"),
        ({"wide": 1001}, "wide: input should be less than or equal to 1000, got 1001"),
        ({"deadline_ms": 10**400}, "deadline_ms: input should be less than or equal to 600000"),
        ({"explain": "yes"}, "explain: input should be a valid boolean, got 'yes'"),
        ({"session": "ops"}, "session: unknown field; /openapi.json lists them"),
    ],
)
def test_a_wrong_body_is_refused_with_the_field_and_the_reason(
    app_client: TestClient, change: dict[str, Any], reason: str
) -> None:
    body = {name: value for name, value in {**QUESTION, **change}.items() if value is not ...}
    answer = app_client.post("/v1/recall", content=json.dumps(body), headers={"content-type": "application/json"})
    assert answer.status_code == 422
    assert list(answer.json()) == PROBLEM
    assert answer.json()["error"].startswith(reason)


@pytest.mark.parametrize(
    ("body", "code", "reason"),
    [
        (b"{", 422, "body: invalid JSON: "),
        (b"", 422, "body: missing"),
        (b"[]", 422, "body: "),
        (b'{"query": "\xff"}', 400, "There was an error parsing the body"),
        (b"[" * 100_000, 400, "There was an error parsing the body"),
    ],
)
def test_what_is_not_a_json_object_is_refused(app_client: TestClient, body: bytes, code: int, reason: str) -> None:
    answer = app_client.post("/v1/recall", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == code
    assert answer.json()["error"].startswith(reason)


@pytest.mark.parametrize("text", ["\x00", "'\"`;--", "a\x00b' OR '1'='1", "%", "🦓" * 50])
def test_any_text_may_be_a_question_or_a_name(app_client: TestClient, text: str) -> None:
    body = {"query": f"port {text}", "tenant": text, "sessions": [text], "agents": [text], "tags": [text]}
    answer = app_client.post("/v1/recall", json=body)
    assert (answer.status_code, answer.json().get("hits")) == (200, [])


def test_an_unknown_path_or_method_is_a_clear_error(app_client: TestClient) -> None:
    for answer in (app_client.get("/v2"), app_client.get("/v1/recall")):
        assert answer.status_code in (404, 405)
        assert list(answer.json()) == PROBLEM


def test_a_mistake_of_ours_is_neither_sent_nor_logged_with_what_was_asked(
    app_client: TestClient, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def fail(_self: Recaller, question: Any) -> None:
        raise RuntimeError(f"cannot answer {question.text}")

    monkeypatch.setattr(Recaller, "recall", fail)
    answer = app_client.post("/v1/recall", json={**QUESTION, "query": "my secret"})
    logged = "".join(capfd.readouterr())
    assert (answer.status_code, list(answer.json())) == (500, PROBLEM)
    assert "RuntimeError" in logged
    assert "test_api.py:" in logged
    for text in (answer.text, logged):
        assert "secret" not in text
        assert "Traceback" not in text


def test_a_command_whose_extra_is_missing_ends_with_2_and_says_what_to_install() -> None:
    program = "import sys; sys.modules['fastapi'] = None; from query.cli import main; main(['serve'])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2
    assert "this command needs the package fastapi: pip install 'scope-recall-hermes[embedded]'" in done.stderr
