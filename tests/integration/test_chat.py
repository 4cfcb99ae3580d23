"""`scope-recall chat` with a real Redis, real stores and a model on the loopback: it remembers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from chat_server import ANSWER, ChatServer, chat_server
from chatting import FACT, Quiet, ask, cli, pushed, run, stored
from fake_service import Service, served
from producers.api_file import API_FILE, announce
from producers.settings import Settings
from query.api.app import create_app
from stepped import Stepped, turn

pytestmark = pytest.mark.integration


@pytest.fixture
def server() -> Iterator[ChatServer]:
    with chat_server() as server:
        yield server


def test_the_second_chat_recalls_what_was_said_in_the_first(system: Stepped, server: ChatServer) -> None:
    first = cli(system.settings, server).run("chat", "--once", FACT, "--json")
    assert (first.code, first.json["answer"]) == (0, ANSWER), first.err
    assert first.json["stored"] == {"user": True, "assistant": True}
    assert first.json["recalled"] == []
    system.settle()
    said = stored(system, first.json["session_id"])
    assert [(e.turn_index, e.role, e.content) for e in said] == [(0, "user", FACT), (1, "assistant", ANSWER)]
    assert {event.source for event in said} == {"chat"}
    second = cli(system.settings, server).run("chat", "--once", "who is my dentist?")
    assert (second.code, second.out) == (0, ANSWER + "\n"), "the answer is all of standard output"
    assert FACT in server.prompt
    assert f"recalled {first.json['session_id']}:0 user: {FACT}" in second.err
    other = run(system.settings, server, "--once", "who is my dentist?", "--tenant", "other")
    assert other.code == 0
    assert "Wu" not in server.prompt, "another tenant's memory is not this one's"


@pytest.mark.parametrize("is_stored", [True, False], ids=["stored", "on its way"])
def test_a_session_that_goes_on_has_its_turns_in_the_prompt_and_replaces_none(
    system: Stepped, server: ChatServer, is_stored: bool
) -> None:
    ask(system.settings, server, FACT, session="s1")
    if is_stored:
        system.settle()
    (exchange,) = ask(system.settings, server, "and where?", session="s1")
    assert server.requests[-1]["messages"][1:] == [
        {"role": "user", "content": FACT},
        {"role": "assistant", "content": ANSWER},
        {"role": "user", "content": "and where?"},
    ]
    assert exchange.turn_index == 2
    assert list(exchange.recalled.hits) == [], "the live session is not recalled besides"
    system.settle()
    assert [event.turn_index for event in stored(system, "s1")] == [0, 1, 2, 3]


def test_two_chats_in_one_session_do_not_replace_each_others_turns(system: Stepped, server: ChatServer) -> None:
    def meanwhile() -> None:
        if len(server.requests) == 1:
            ask(system.settings, server, "from the other window", session="s1")

    ask(system.settings, server, "from this window", "again from this one", session="s1", display=Quiet(meanwhile))
    system.settle()
    contents = [event.content for event in stored(system, "s1") if event.role == "user"]
    assert sorted(contents) == ["again from this one", "from the other window", "from this window"]


def test_turns_that_cannot_be_seen_are_not_replaced(live_settings: Settings, server: ChatServer) -> None:
    away = live_settings.model_copy(update={"redis_url": "unix:///nonexistent/redis.sock"})
    first, second = ask(away, server, "one", "two", session="s1")
    assert first.question_stored
    assert first.turn_index > 10**12, "above every index that may be there"
    assert second.turn_index == first.turn_index + 2, "and from there on as always"
    assert server.requests[-1]["messages"][1]["content"] == "one"


def test_history_is_bounded_and_keeps_the_newest(live_settings: Settings, server: ChatServer) -> None:
    bound = 50 + 2 * len(ANSWER)
    ask(live_settings, server, "a" * 50, "b" * 50, "c", chat_history_chars=bound)
    contents = [message["content"] for message in server.requests[-1]["messages"][1:]]
    assert contents == ["b" * (bound // 2) + " […]", ANSWER, "c"], "one long turn is cut, so that others have room"
    ask(live_settings, server, "a", "b", chat_history_chars=0)
    assert [message["content"] for message in server.requests[-1]["messages"][1:]] == ["b"]


@pytest.mark.parametrize("by_service", [False, True], ids=["process", "service"])
def test_what_the_prompt_no_longer_holds_of_a_session_is_recalled(
    system: Stepped, server: ChatServer, by_service: bool
) -> None:
    ask(system.settings, server, FACT, *(f"remark {number}" for number in range(5)), session="s1")
    system.settle()
    with ExitStack() as running:
        if by_service:
            held = announce(system.settings.data_dir, running.enter_context(served(create_app(system.settings))))
            assert held is not None
            running.callback(held.close)
        (exchange,) = ask(system.settings, server, "who is my dentist?", session="s1", chat_history_chars=100)
    assert exchange.recalled.by == ("service" if by_service else "process")
    contents = {message["content"] for message in server.requests[-1]["messages"][1:]}
    recalled = [hit.content for hit in exchange.recalled.hits]
    assert FACT in recalled
    assert "remark 4" in contents
    assert not contents & set(recalled) - {ANSWER}, "and what it holds is not"


def test_the_service_that_runs_is_asked_and_the_stores_are_left_alone(
    live_settings: Settings, server: ChatServer, service: Service
) -> None:
    held = announce(live_settings.data_dir, service.url)
    result = run(live_settings, server, "--once", "port?", "--session", "s1", "-k", "3", "--json")
    assert held is not None
    held.close()
    assert (result.code, result.json["recalled_by"]) == (0, "service"), result.err
    assert result.json["recalled"][0]["session_id"] == "s"
    recent = [{"session_id": "s1", "turns": 1}]  # the question itself
    assert service.bodies[-1] == {
        "query": "port?",
        "tenant": "default",
        "exclude_recent": recent,
        "k": 3,
        "deadline_ms": 5000,
    }
    assert "<port?>" in server.prompt
    assert len(pushed(live_settings)) == 2


def test_what_was_said_before_goes_with_the_next_question(
    live_settings: Settings, server: ChatServer, service: Service
) -> None:
    held = announce(live_settings.data_dir, service.url)
    ask(live_settings, server, "which ferries go?", "and the second one?")
    assert [body.get("query_context") for body in service.bodies] == [
        None, f"user: which ferries go?\nassistant: {ANSWER}",
    ]  # fmt: skip
    assert held is not None
    held.close()


def test_a_question_in_the_middle_of_a_talk_recalls_what_the_talk_is_about(system: Stepped, server: ChatServer) -> None:
    fact = "My dentist is Dr. Wu, who is the dentist of us all."
    others = ["An opera ticket for Thursday, row seven, aisle.", "Our printer needs a cartridge from a shop in town."]
    system.store(*(turn(said, index, session_id=f"s{index}") for index, said in enumerate([*others, fact])))
    _, second = ask(system.settings, server, "who is my dentist?", "and then?")
    assert second.recalled.hits[0].content == fact


@pytest.mark.parametrize(
    ("first", "reason"),
    [((401, {"error": "no key"}, {}), "answered 401: no key"), ((500, {"error": "oh"}, {}), "answered 500")],
)
def test_when_the_service_cannot_this_process_recalls_itself(
    system: Stepped, server: ChatServer, service: Service, first: Any, reason: str
) -> None:
    system.store(turn(FACT))
    held = announce(system.settings.data_dir, service.url)
    service.first = [first]
    one, two = ask(system.settings, server, "who is my dentist?", "and when?")
    assert held is not None
    held.close()
    assert (one.recalled.by, two.recalled.by) == ("process", "process")
    assert reason in one.recalled.degraded[0]
    assert list(two.recalled.degraded) == [], "it is said once"
    assert FACT in server.prompt


def test_a_service_that_has_gone_is_not_waited_for(system: Stepped, server: ChatServer) -> None:
    system.store(turn(FACT))
    (system.settings.data_dir / API_FILE).write_text('{"url": "http://127.0.0.1:1", "pid": 4194305}')
    (exchange,) = ask(system.settings, server, "who is my dentist?")
    assert (exchange.recalled.by, list(exchange.recalled.degraded)) == ("process", [])


def test_with_a_service_elsewhere_it_keeps_the_turns_too(
    settings: Settings, server: ChatServer, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("producers.client.RETRIES", 0)
    result = run(
        settings, server, "--once", FACT, "--json", "--service-url", service.url, SCOPE_RECALL_SERVICE_API_KEY="sr_1"
    )
    assert (result.code, result.json["stored"]) == (0, {"user": True, "assistant": True}), result.err
    assert [identity.role for identity in service.turns] == ["user", "assistant"]
    assert set(service.keys[-3:]) == {"Bearer sr_1"}
    assert "tenant" not in service.bodies[-2], "it is the key's"
    away = run(settings, server, "--once", FACT, "--service-url", "http://127.0.0.1:1")
    assert (away.code, away.out) == (1, ANSWER + "\n")
    assert "the user's turn was not stored" in away.err
