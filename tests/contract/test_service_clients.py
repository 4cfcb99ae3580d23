"""The clients of the query service, with and without asyncio, over the loopback: what they send, take and raise."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from driven import Driven
from fake_service import Service, raw_server
from producers.client import AsyncProducer, Producer
from producers.errors import (
    InvalidRequest,
    ServiceAway,
    ServiceRefused,
    UnexpectedAnswer,
    UsageError,
)
from producers.events import TurnEvent
from producers.recall_client import AsyncRecallClient, RecallClient

pytestmark = pytest.mark.contract

OK = b'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 24\r\n\r\n{"hits":[],"context":""}'
BUSY = {"title": "Busy", "status": 503, "error": "the stream is full"}


def recall_client(url: str, **options: Any) -> Any:
    return RecallClient(url, **options)


def async_recall_client(url: str, **options: Any) -> Any:
    return Driven(lambda: AsyncRecallClient(url, **options))


@pytest.fixture(params=[recall_client, async_recall_client], ids=["sync", "async"])
def client_of(request: pytest.FixtureRequest) -> Callable[..., Any]:
    return request.param  # type: ignore[no-any-return]


def turn(index: int, content: str = "said", **fields: Any) -> dict[str, Any]:
    return {"session_id": "s", "turn_index": index, "role": "user", "content": content, **fields}


def test_a_recall_sends_every_option_and_gives_a_typed_answer(service: Service, client_of: Callable[..., Any]) -> None:
    moment = datetime(2026, 1, 31, tzinfo=UTC)
    with client_of(service.url, api_key="sr_1") as client:
        answer = client.recall(
            "port?",
            tenant="acme",
            sessions=["a"],
            roles=("user",),
            query_context="before",
            exclude_recent={"live": 20},
            where={"git.branch": ("main", "next"), "ok": True, "gone": None},
            code_languages=("python",),
            since=moment,
            k=3,
            fold=False,
            why=("a", 7),
        )
        assert (answer.context, answer.hits[0].session_id, answer.hits[0].turn_index) == ("<port?>", "s", 3)
        assert answer.later == {"x": 1}, "a field of a later version is kept"
        assert answer.hits[0].new_field == [1]
        client.recall("bare")
    assert service.bodies == [
        {
            "query": "port?",
            "tenant": "acme",
            "sessions": ["a"],
            "roles": ["user"],
            "query_context": "before",
            "exclude_recent": [{"session_id": "live", "turns": 20}],
            "where": {"git.branch": ["main", "next"], "ok": True, "gone": None},
            "code_languages": ["python"],
            "since": "2026-01-31T00:00:00+00:00",
            "k": 3,
            "fold": False,
            "why": {"session_id": "a", "turn_index": 7},
        },
        {"query": "bare"},
    ]
    assert service.keys == ["Bearer sr_1"] * 2


def test_push_forget_and_status(service: Service, client_of: Callable[..., Any]) -> None:
    with client_of(service.url) as client:
        assert client.push([turn(0), TurnEvent(**turn(1), tenant="acme")]) == 2
        assert client.forget("acme", dry_run=True).turns == 2
        forgotten = client.forget("acme", session="s", before=datetime(2026, 1, 1, tzinfo=UTC))
        assert (forgotten.turns, forgotten.chunks, forgotten.verified) == (2, 2, True)
        status = client.status()
        assert (status.degraded, status.catalog["turns"], status.api) == (("a disk",), 7, {"url": "x"})
    assert service.bodies[2] == {"tenant": "acme", "session": "s", "before": "2026-01-01T00:00:00+00:00"}


def test_sessions_history_and_count(service: Service, client_of: Callable[..., Any]) -> None:
    moment = datetime(2026, 1, 31, tzinfo=timezone(timedelta(hours=8)))
    with client_of(service.url, api_key="sr_1") as client:
        sessions = client.sessions(tenant="acme", agents=["a", "b&c"], since=moment, limit=5)
        assert (sessions.total, sessions.sessions[0].session_id, sessions.sessions[0].turns) == (7, "s", 2)
        assert sessions.sessions[0].last == datetime(2026, 1, 31, 9, tzinfo=UTC)
        history = client.history("a/b ?#%../证", roles=["user"], last=2, skip=1)
        assert (history.turns[0].turn_index, history.total, history.left_out) == (3, 3, 2)
        client.history("..")
        counted = client.count("100% &=+", by="day")
        assert (counted.turns, counted.times, counted.groups[0].day) == (2, 3, None)
        client.sessions()
    assert service.bodies == [
        {"tenant": ["acme"], "agents": ["a", "b&c"], "since": ["2026-01-31T00:00:00+08:00"], "limit": ["5"]},
        {"session_id": "a/b ?#%../证", "roles": ["user"], "last": ["2"], "skip": ["1"]},
        {"session_id": ".."},
        {"text": ["100% &=+"], "by": ["day"]},
        {},
    ]
    assert service.keys == ["Bearer sr_1"] * 5


def test_what_is_looked_for_is_in_no_error(service: Service, client_of: Callable[..., Any]) -> None:
    service.first = [(422, {"error": "by: wrong"}, {})]
    with client_of(service.url) as client:
        with pytest.raises(InvalidRequest, match=r"/v1/count answered 422: by: wrong") as caught:
            client.count("my secret")
        assert "secret" not in str(caught.value)
        for ask, reason in (
            (lambda: client.history("\ud800"), "session_id: holds a lone surrogate"),
            (lambda: client.count("\ud800"), "text: holds a lone surrogate"),
            (lambda: client.sessions(agents="a"), "agents: a list is due"),
        ):
            with pytest.raises(InvalidRequest, match=reason):
                ask()


@pytest.mark.parametrize(
    ("answer", "kind", "reason"),
    [
        ((401, {"error": "no key"}, {}), ServiceRefused, r"answered 401: no key\. This client takes one as api_key"),
        ((403, {"error": "not yours"}, {}), ServiceRefused, r"answered 403: not yours$"),
        ((422, {"error": "k: too small, got 0"}, {}), InvalidRequest, "answered 422: k: too small"),
        ((500, {"error": "internal error"}, {}), UnexpectedAnswer, "a mistake of the service"),
        ((404, "nothing here", {}), UnexpectedAnswer, "Is this the URL of a scope-recall service"),
        (
            (200, {"hits": [{"session_id": "s"}], "context": ""}, {}),
            UnexpectedAnswer,
            r"hits\.0\.turn_index: Field required",
        ),
        ((200, [1], {}), UnexpectedAnswer, "Is it the query service"),
        ((200, {"hits": [{"session_id": ["secret"]}], "context": ""}, {}), UnexpectedAnswer, r"hits\.0\.session_id"),
    ],
)
def test_each_refusal_is_told_by_what_it_is(
    service: Service, client_of: Callable[..., Any], answer: Any, kind: type[Exception], reason: str
) -> None:
    service.first = [answer]
    with client_of(service.url) as client, pytest.raises(kind, match=reason) as caught:
        client.recall("port?", tenant="acme")
    assert service.url in str(caught.value)
    assert "secret" not in str(caught.value)
    assert len(service.bodies) == 1, "and is not tried again"


def test_the_field_that_is_wrong_is_named(service: Service, client_of: Callable[..., Any]) -> None:
    with client_of(service.url) as client:
        for options, field in (
            ({"k": 0}, "k"),
            ({"sessions": "ops"}, "sessions"),
            ({"tenant": "\ud800"}, "tenant"),
            ({"why": "s:1"}, "why"),
            ({"exclude_recent": ["s"]}, "exclude_recent"),
        ):
            with pytest.raises(InvalidRequest) as caught:
                client.recall("port?", **options)
            assert caught.value.field == field
        with pytest.raises(InvalidRequest, match="min_score: cannot be sent as JSON"):
            client.recall("port?", min_score=float("nan"))


def test_a_service_that_asks_for_patience_gets_it(service: Service, client_of: Callable[..., Any]) -> None:
    service.first = [(429, BUSY, {"Retry-After": "0.2"}), (503, BUSY, {"Retry-After": "0"}), (502, BUSY, {})]
    started = time.monotonic()
    with client_of(service.url) as client:
        assert client.recall("port?").context == "<port?>"
    assert time.monotonic() - started >= 0.2
    assert len(service.bodies) == 4


def test_patience_ends_with_the_time_out_and_the_error_says_when_to_come_again(
    service: Service, client_of: Callable[..., Any]
) -> None:
    service.first = [(503, BUSY, {"Retry-After": "30"})]
    with client_of(service.url, timeout=5) as client, pytest.raises(ServiceAway, match="the stream is full") as caught:
        client.recall("port?")
    assert caught.value.retry_after == 30
    service.first = [(503, BUSY, {})] * 9
    with client_of(service.url) as client, pytest.raises(ServiceAway, match="the stream is full") as caught:
        client.recall("port?")
    assert caught.value.retry_after is None
    assert len(service.first) == 6, "two more attempts, then the caller decides"


def trickle(connection: socket.socket, number: int) -> None:
    connection.sendall(OK[:-20])
    for byte in OK[-20:]:
        time.sleep(0.1)
        connection.sendall(bytes([byte]))


@pytest.mark.parametrize("behave", [lambda connection, number: time.sleep(5), trickle], ids=["silent", "trickling"])
def test_a_call_ends_within_its_time(
    client_of: Callable[..., Any], behave: Callable[[socket.socket, int], None]
) -> None:
    with raw_server(behave) as url, client_of(url) as client:
        started = time.monotonic()
        with pytest.raises(ServiceAway, match=r"took longer than timeout = 0\.4 s"):
            client.recall("port?", timeout=0.4)
        assert time.monotonic() - started < 0.9


def test_a_broken_connection_is_tried_again(client_of: Callable[..., Any]) -> None:
    def behave(connection: socket.socket, number: int) -> None:
        if number == 1:
            connection.sendall(OK[:50])
        if number == 2:
            connection.sendall(OK)

    with raw_server(behave) as url, client_of(url) as client:
        assert client.recall("port?").hits == ()


def test_a_service_that_is_away_is_named_with_what_to_do(client_of: Callable[..., Any]) -> None:
    with client_of("http://127.0.0.1:1") as client:
        started = time.monotonic()
        with pytest.raises(ServiceAway, match=r"at http://127\.0\.0\.1:1/v1/recall cannot be reached.*scope-recall up"):
            client.recall("port?")
        assert time.monotonic() - started < 2


@pytest.mark.parametrize("url", ["127.0.0.1:8420", "ftp://host", "http://", "http://user:hunter2@", "http://[::1", ""])
def test_a_url_or_key_that_cannot_be_right_is_refused_at_once(url: str) -> None:
    for make in (RecallClient, AsyncRecallClient, Producer, AsyncProducer):
        with pytest.raises(UsageError) as caught:
            make(url)
        assert "hunter2" not in str(caught.value)
        with pytest.raises(UsageError, match="api_key") as caught:
            make("http://127.0.0.1:8420", api_key="hunter2\n")
        assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("timeout", [float("inf"), 1e12, 0, -1, float("nan"), "soon"])
def test_a_time_that_nobody_can_wait_is_refused(client_of: Callable[..., Any], service: Service, timeout: Any) -> None:
    with client_of(service.url) as client, pytest.raises(UsageError, match=r"timeout = .*: seconds above 0 are due"):
        client.recall("port?", timeout=timeout)


def test_a_closed_client_says_so(client_of: Callable[..., Any], service: Service) -> None:
    with client_of(service.url) as client:
        client.recall("port?")
        client.close()
        with pytest.raises(UsageError, match="this client is closed"):
            client.recall("port?")


def test_many_threads_share_one_client(service: Service) -> None:
    with RecallClient(service.url) as client, ThreadPoolExecutor(16) as pool:
        asked = [f"question {n}" for n in range(100)]
        answers = list(pool.map(client.recall, asked))
    assert [answer.query for answer in answers] == asked
