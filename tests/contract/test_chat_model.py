"""The model's client against a real server on the loopback: what it answers, and how it can fail."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from chat_server import ANSWER, ChatServer, breaks_off, chat_server, delta, fails, hangs, streams
from producers.errors import ModelAway, ModelError, ScopeRecallError, SettingsError, UsageError
from producers.settings import load_settings
from query.agent.model import ChatModel, Message

pytestmark = pytest.mark.contract

QUESTION = Message(role="user", content="the secret is a purple elephant in the cellar")


@pytest.fixture
def server() -> Iterator[ChatServer]:
    with chat_server() as server:
        yield server


def ask(server: ChatServer, **settings: Any) -> str:
    given = {"chat_url": server.url, "chat_model": "fake", "chat_timeout": 5.0, **settings}
    with ChatModel(load_settings(**given)) as model:
        return "".join(piece.text for piece in model.answer([QUESTION]))


def test_an_answer_is_streamed_and_the_request_is_what_servers_take(server: ChatServer) -> None:
    assert ask(server, chat_api_key="sk-1") == ANSWER
    assert server.requests == [{"model": "fake", "messages": [QUESTION], "stream": True}]
    assert server.keys == ["Bearer sk-1"]


def test_pieces_come_as_they_are_said(server: ChatServer) -> None:
    server.behave = hangs(delta("first"))
    with ChatModel(load_settings(chat_url=server.url, chat_model="fake")) as model:
        pieces = model.answer([QUESTION])
        assert next(pieces).text == "first", "although the rest is not there yet"
        pieces.close()


@pytest.mark.parametrize(
    ("behave", "said"),
    [
        (streams(delta("no DONE is "), delta("said", finish_reason="stop")), "no DONE is said"),
        (streams(delta("no reason is said", finish_reason=""), b"data: [DONE]\n\n"), "no reason is said"),
        (fails(200, {"choices": [{"message": {"content": "all at once"}}]}), "all at once"),
        (streams(b": alive\n\n", delta("late", finish_reason="stop"), pause=0.01), "late"),
    ],
    ids=["no DONE", "no reason", "no stream", "keep-alive"],
)
def test_servers_of_every_kind_are_understood(server: ChatServer, behave: Callable[[Any], None], said: str) -> None:
    server.behave = behave
    assert ask(server) == said


@pytest.mark.parametrize(
    ("behave", "kind", "reason"),
    [
        (fails(500), ModelAway, "HTTP 500: it is broken. The server failed"),
        (fails(503, b"<html>"), ModelAway, r"HTTP 503\. The server failed"),
        (fails(429, retry_after="7"), ModelAway, r"HTTP 429: it is broken.*ask again in 7 s"),
        (fails(429), ModelAway, "ask again later"),
        (fails(401), ModelError, "HTTP 401: it is broken. Give the server's key by --api-key"),
        (fails(403, {"detail": "not for you"}), ModelError, "HTTP 403: not for you. Give the server's key"),
        (fails(404), ModelError, r"HTTP 404: it is broken\. It does serve fake, so the request"),
        (fails(302, b""), ModelError, "HTTP 302. Check --base-url"),
        (fails(200, b"<html>a page</html>"), ModelError, r"\(text/html\) is no OpenAI-compatible chat server"),
        (fails(200, {"hello": 1}), ModelError, r"\(application/json\) is no OpenAI-compatible chat server"),
        (streams(b"data: {broken\n\n"), ModelAway, r"the server sent broken JSON"),
        (
            streams(delta("a"), b'data: {"error": {"message": "GPU lost"}}\n\n'),
            ModelAway,
            "while it answered: GPU lost",
        ),
        (streams(delta("half an ans", finish_reason="")), ModelAway, "closed the connection before its end"),
        (breaks_off(delta("half an ans")), ModelAway, r"the connection broke off \(RemoteProtocolError\)"),
    ],
)
def test_each_failure_is_told_by_what_it_is(
    server: ChatServer, behave: Callable[[Any], None], kind: type[ScopeRecallError], reason: str
) -> None:
    server.behave = behave
    with pytest.raises(kind, match=rf"model fake at http://127\.0\.0\.1:\d+/v1: .*{reason}"):
        ask(server)


def test_a_model_that_the_server_does_not_have_is_named_with_those_it_has(server: ChatServer) -> None:
    server.behave = fails(404)
    with pytest.raises(ModelError, match="It does not serve 'gone'; it has fake, other"):
        ask(server, chat_model="gone")


@pytest.mark.parametrize(
    "body", [{"error": "cannot read: " + QUESTION["content"]}, {"error": QUESTION["content"][20:40]}]
)
def test_an_error_that_repeats_the_prompt_is_not_shown(server: ChatServer, body: dict[str, str]) -> None:
    for behave in (fails(400, body), fails(500, body), fails(200, body)):
        server.behave = behave
        with pytest.raises(ScopeRecallError) as caught:
            ask(server)
        assert "elephant" not in str(caught.value)


def alive_for_ever(handler: Any) -> None:
    handler.begin()
    while not handler.server.released.wait(0.02):
        handler.send(b": alive\n\n")


@pytest.mark.parametrize("behave", [hangs(), hangs(delta("then nothing")), alive_for_ever])
def test_silence_ends_at_the_time_out(server: ChatServer, behave: Callable[[Any], None]) -> None:
    server.behave = behave
    started = time.monotonic()
    with pytest.raises(ModelAway, match=r"said nothing for 0\.3 s; ask again, or raise --timeout"):
        ask(server, chat_timeout=0.3)
    assert time.monotonic() - started < 3


def test_a_server_that_is_not_there_is_named(server: ChatServer) -> None:
    with pytest.raises(ModelAway, match=r"at http://127\.0\.0\.1:1: cannot be reached .*start the server"):
        ask(server, chat_url="http://127.0.0.1:1")


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"chat_url": None}, "--base-url .* is missing"),
        ({"chat_model": None}, "--model .* is missing"),
        ({"chat_url": "127.0.0.1:8080"}, "setting chat_url = .*must start with http"),
        ({"chat_url": "http://"}, "http://HOST:PORT or https://HOST is due"),
        ({"chat_api_key": "sk\nx"}, "api_key: empty, or with characters"),
    ],
)
def test_what_is_missing_or_wrong_is_said_before_anything_is_sent(
    server: ChatServer, settings: dict[str, Any], reason: str
) -> None:
    with pytest.raises((SettingsError, UsageError), match=reason):
        ask(server, **settings)
    assert server.requests == []
