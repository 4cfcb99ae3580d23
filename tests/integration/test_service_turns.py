"""`POST /v1/turns` on a real Redis: what is accepted is on the stream, and each item is judged alone."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from fastapi.testclient import TestClient

from producers.connection import connect
from producers.events import TurnEvent
from producers.keys import EVENT_FIELD, Keys
from producers.settings import Settings
from producers.spool import spooled
from query.api.app import create_app
from query.api.requests import MAX_TURNS
from served import LOOPBACK, make_key

pytestmark = pytest.mark.integration

JSON = {"content-type": "application/json"}


def turn(index: int = 0, **fields: Any) -> dict[str, Any]:
    return {"session_id": "s", "turn_index": index, "role": "user", "content": f"turn {index}", **fields}


@pytest.fixture
def asking(shared_settings: Settings) -> Iterator[Callable[..., TestClient]]:
    """Makes clients of the service on the test's Redis, with settings of the test's own."""
    opened: list[TestClient] = []

    def ask(**changes: Any) -> TestClient:
        client = TestClient(create_app(shared_settings.model_copy(update=changes)), LOOPBACK)
        client.__enter__()
        opened.append(client)
        return client

    yield ask
    for client in opened:
        client.__exit__(None, None, None)


@pytest.fixture
def client(asking: Callable[..., TestClient]) -> TestClient:
    return asking()


def on_the_stream(settings: Settings) -> list[TurnEvent]:
    with connect(settings) as redis:
        entries: Any = redis.xrange(Keys(settings.key_prefix).stream("live"))
    return [TurnEvent.model_validate_json(fields[EVENT_FIELD]) for _, fields in entries]


def test_one_turn_is_accepted_with_the_key_of_its_identity(client: TestClient, shared_settings: Settings) -> None:
    answer = client.post("/v1/turns", json=turn(tenant="acme", content="你好", created_at="2026-01-31T09:00:00+08:00"))
    [event] = on_the_stream(shared_settings)
    assert (answer.status_code, answer.json()) == (202, {"results": [{"status": "accepted", "key": event.key}]})
    assert (event.tenant, event.content) == ("acme", "你好")
    again = client.post("/v1/turns", json=turn(tenant="acme", content="你好", created_at="2026-01-31T09:00:00+08:00"))
    assert again.json() == answer.json()


def test_of_many_the_good_ones_are_accepted_in_order_and_each_bad_one_says_why(
    client: TestClient, shared_settings: Settings
) -> None:
    bad: list[tuple[Any, str, str]] = [
        ({"session_id": "s", "turn_index": 1, "content": "x"}, "role", "role: missing"),
        (turn(created_at="2026-01-31T09:00:00"), "created_at", "created_at: has no time zone"),
        (turn(created_at=0), "created_at", "created_at: "),
        (turn(tags=["ok", 1]), "tags.1", "tags.1: input should be a valid string"),
        (turn(colour="red"), "colour", "colour: unknown field"),
        (turn(content="x" * (2 << 20)), "content", "content: 2,097,152 bytes, over the limit"),
        (turn(metadata={"x": "y" * 20_000}), "metadata", "metadata: 20,"),
        (turn(content="lone \ud800"), "content", "content: holds a lone surrogate"),
        (turn(turn_index=True), "turn_index", "turn_index: input should be a valid integer"),
        (turn(tenant=7), "tenant", "tenant: input should be a valid string"),
        (7, "", "not a JSON object"),
        (None, "", "not a JSON object"),
    ]
    body = {"turns": [turn(0), *(item for item, _, _ in bad), turn(1)]}
    answer = client.post("/v1/turns", content=json.dumps(body), headers=JSON)
    first, *rejected, last = answer.json()["results"]
    assert answer.status_code == 202
    assert first["status"] == last["status"] == "accepted"
    for result, (_, field, reason) in zip(rejected, bad, strict=True):
        assert (result["status"], result["field"]) == ("rejected", field), result
        assert result["reason"].startswith(reason), result
    assert [event.turn_index for event in on_the_stream(shared_settings)] == [0, 1]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "body: invalid JSON"),
        (b"{", "body: invalid JSON"),
        (b"\xff", "body: invalid JSON"),
        (b"[" * 100_000, "body: invalid JSON: RecursionError"),
        (b"1" * 5000, "body: invalid JSON"),
        (b"[]", "body: an object is due"),
        (b'{"turns": {}}', "turns: a list of turn events is due"),
        (b'{"turns": []}', "turns: a list of turn events is due"),
        (b'{"turns": [], "tenant": "acme"}', "turns: a list of turn events is due, with nothing beside it"),
        (b'{"turns": [' + b"0," * MAX_TURNS + b"0]}", "turns: 1,001 of them, over the limit of 1,000"),
    ],
)
def test_a_body_that_is_wrong_as_a_whole_is_refused(
    client: TestClient, shared_settings: Settings, body: bytes, reason: str
) -> None:
    answer = client.post("/v1/turns", content=body, headers=JSON)
    assert answer.status_code == 422
    assert answer.json()["error"].startswith(reason)
    assert on_the_stream(shared_settings) == []


def test_the_tenant_is_the_keys_and_a_body_that_names_another_is_refused_whole(
    client: TestClient, shared_settings: Settings
) -> None:
    _, text = make_key(shared_settings.data_dir, "acme")
    client.headers["authorization"] = f"Bearer {text}"
    assert client.post("/v1/turns", json={"turns": [turn(0), turn(1, tenant="acme")]}).status_code == 202
    for other in ("other", "default", "scope-recall canary"):
        mixed = {"turns": [turn(2), turn(3, tenant=other)]}
        assert client.post("/v1/turns", json=mixed).status_code == 403
    assert [(event.tenant, event.turn_index) for event in on_the_stream(shared_settings)] == [("acme", 0), ("acme", 1)]


def test_at_high_water_nothing_is_accepted_and_the_caller_is_told_when_to_come_again(
    asking: Callable[..., TestClient], shared_settings: Settings
) -> None:
    client = asking(high_water=2)
    for number in range(2):
        assert client.post("/v1/turns", json=turn(number)).status_code == 202
    full = client.post("/v1/turns", json=turn(2))
    assert (full.status_code, full.headers["retry-after"]) == (503, "5")
    assert "high-water mark" in full.json()["error"]
    assert len(on_the_stream(shared_settings)) == 2


def test_while_redis_is_away_turns_are_spooled_and_without_room_refused(
    asking: Callable[..., TestClient], shared_settings: Settings
) -> None:
    away = {"redis_url": "redis://127.0.0.1:1/0"}
    assert asking(**away).post("/v1/turns", json=turn()).status_code == 202
    assert spooled(shared_settings.model_copy(update=away)).events == 1
    for settings in ({"spool": False}, {"spool_bytes": 1}):
        refused = asking(**away, **settings).post("/v1/turns", json=turn(1))
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "5")
    assert spooled(shared_settings.model_copy(update=away)).events == 1


@pytest.fixture
def hanging() -> Iterator[str]:
    """The URL of a Redis that takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"redis://127.0.0.1:{listener.getsockname()[1]}/0"


def test_a_redis_that_hangs_costs_a_caller_a_second_and_no_turn(
    asking: Callable[..., TestClient], shared_settings: Settings, hanging: str
) -> None:
    client = asking(redis_url=hanging)
    for ask, code in ((lambda: client.post("/v1/turns", json=turn()), 202), (lambda: client.get("/v1/status"), 200)):
        started = time.monotonic()
        answer = ask()
        assert time.monotonic() - started < 5
        assert answer.status_code == code
    assert any("no Redis at" in line for line in answer.json()["degraded"])
    assert spooled(shared_settings.model_copy(update={"redis_url": hanging})).events == 1


def test_what_many_push_at_once_is_all_there_once_and_in_each_ones_order(
    client: TestClient, shared_settings: Settings
) -> None:
    def push(caller: int) -> None:
        for first in range(0, 20, 5):
            turns = [turn(index, session_id=f"s{caller}") for index in range(first, first + 5)]
            results = client.post("/v1/turns", json={"turns": turns}).json()["results"]
            assert [one["status"] for one in results] == ["accepted"] * 5

    with ThreadPoolExecutor(10) as callers:
        list(callers.map(push, range(10)))
    events = on_the_stream(shared_settings)
    for caller in range(10):
        assert [event.turn_index for event in events if event.session_id == f"s{caller}"] == list(range(20))
    assert len(events) == 200
