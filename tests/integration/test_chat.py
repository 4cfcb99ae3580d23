"""`scope-recall chat` with a real Redis, real stores and a model on the loopback: it remembers, whatever fails."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from chat_server import ANSWER, ChatServer, breaks_off, chat_server, delta, fails, hangs, streams
from producers.events import TurnEvent, valid_event
from producers.keys import EVENT_FIELD, Keys
from producers.settings import Settings
from query.agent.loop import Chat, Exchange
from query.agent.memory import Memory, Recalled
from query.agent.model import ChatModel
from query.agent.session import Session
from query.commands import chat as command
from stepped import Stepped
from system import Cli, Result
from workers.stores.catalog import Catalog
from workers.stores.session_tail import session_tail

pytestmark = pytest.mark.integration

FACT = "My dentist is Dr. Wu, 预约在星期四。"


@pytest.fixture
def server() -> Iterator[ChatServer]:
    with chat_server() as server:
        yield server


class Quiet:
    """Nobody watches; a function may be called at each piece."""

    def __init__(self, at_piece: Callable[[], None] = lambda: None) -> None:
        self.at_piece = at_piece

    def recalled(self, recalled: Recalled) -> None:
        """Nothing."""

    def thinks(self) -> None:
        """Nothing."""

    def says(self, text: str) -> None:
        self.at_piece()


def ask(settings: Settings, server: ChatServer, *questions: str, **options: Any) -> list[Exchange]:
    """Ask in this process, in one chat."""
    display = options.pop("display", Quiet())
    session_id, tenant = options.pop("session", None), options.pop("tenant", "default")
    settings = settings.model_copy(update={"chat_url": server.url, "chat_model": "fake", **options})
    live = Session(settings, tenant, session_id or "new", is_new=session_id is None, is_remote=False)
    with (
        ChatModel(settings) as model,
        Memory(settings, tenant, live.id, 5) as memory,
        command._producer(settings) as producer,
    ):
        chat = Chat(settings, live, memory, model, producer)
        return [chat.ask(question, display) for question in questions]


def run(settings: Settings, server: ChatServer, *args: str, stdin: bytes = b"") -> Result:
    environment = {"SCOPE_RECALL_CHAT_URL": server.url, "SCOPE_RECALL_CHAT_MODEL": "fake"}
    return Cli(settings.data_dir, environment).run("chat", *args, stdin=stdin)


def pushed(settings: Settings) -> list[TurnEvent]:
    """What is on the live stream, in order."""
    from producers.connection import connect

    with connect(settings) as client:
        entries: Any = client.xrange(Keys(settings.key_prefix).stream("live"))
    return [valid_event(fields[EVENT_FIELD]) for _, fields in entries]


def stored(system: Stepped, session: str, tenant: str = "default") -> list[TurnEvent]:
    catalog = Catalog.open(system.settings.catalog_location)
    found = session_tail(catalog, tenant, session, 100)
    catalog.close()
    return found


def test_the_second_chat_recalls_what_was_said_in_the_first(system: Stepped, server: ChatServer) -> None:
    first = run(system.settings, server, "--once", FACT, "--json")
    assert (first.code, first.json["answer"]) == (0, ANSWER), first.err
    assert first.json["stored"] == {"user": True, "assistant": True}
    assert first.json["recalled"] == []
    system.settle()
    said = stored(system, first.json["session_id"])
    assert [(e.turn_index, e.role, e.content) for e in said] == [(0, "user", FACT), (1, "assistant", ANSWER)]
    assert {event.source for event in said} == {"chat"}
    second = run(system.settings, server, "--once", "who is my dentist?")
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
    ask(live_settings, server, "a" * 50, "b" * 50, "c", chat_history_chars=50 + 2 * len(ANSWER))
    contents = [message["content"] for message in server.requests[-1]["messages"][1:]]
    assert contents == ["b" * 50, ANSWER, "c"]


@pytest.mark.parametrize(
    ("behave", "code", "reason"),
    [
        (fails(500), 1, "HTTP 500"),
        (hangs(), 1, "said nothing for 0.5 s"),
        (streams(b"data: {broken\n\n"), 1, "broken JSON"),
        (streams(b"data: [DONE]\n\n"), 1, "an empty answer"),
        (fails(401), 2, "--api-key"),
        (fails(404), 2, "It does serve fake"),
    ],
    ids=["500", "hang", "broken JSON", "empty", "401", "404"],
)
def test_when_the_model_fails_the_persons_turn_is_kept_and_the_reason_said(
    live_settings: Settings, server: ChatServer, behave: Callable[[Any], None], code: int, reason: str
) -> None:
    server.behave = behave
    result = run(live_settings, server, "--once", FACT, "--timeout", "0.5")
    assert (result.code, result.out) == (code, "")
    assert reason in result.err
    assert "Traceback" not in result.err
    assert "Wu" not in result.err
    assert [(event.role, event.content) for event in pushed(live_settings)] == [("user", FACT)]


def test_with_json_a_failure_is_an_object_with_what_was_stored(live_settings: Settings, server: ChatServer) -> None:
    server.behave = fails(500)
    result = run(live_settings, server, "--once", FACT, "--json")
    assert result.code == 1
    assert (result.json["answer"], result.json["type"]) == ("", "ModelAway")
    assert "HTTP 500" in result.json["error"]
    assert result.json["stored"] == {"user": True, "assistant": False}


@pytest.mark.parametrize(
    ("behave", "said", "tag"),
    [
        (breaks_off(delta("half an ans")), "half an ans", "incomplete"),
        (hangs(delta("and then")), "and then", "incomplete"),
        (streams(delta("too long", finish_reason="length")), "too long", "incomplete"),
        (streams(delta("whole", finish_reason="stop")), "whole", None),
        (streams(delta("with a \x00 in it")), "with a \ufffd in it", None),
    ],
)
def test_what_was_said_before_an_answer_broke_off_is_kept_with_a_tag(
    live_settings: Settings, server: ChatServer, behave: Callable[[Any], None], said: str, tag: str | None
) -> None:
    server.behave = behave
    (exchange,) = ask(live_settings, server, "go on", chat_timeout=0.5)
    assert exchange.answer_stored
    event = pushed(live_settings)[-1]
    assert (event.role, event.content, event.tags) == ("assistant", said, (tag,) if tag else ())


def test_an_answer_without_end_is_cut_at_the_largest_turn(live_settings: Settings, server: ChatServer) -> None:
    server.behave = streams(*[delta("x" * 40)] * 50, cut=1000)
    (exchange,) = ask(live_settings, server, "talk", max_content_bytes=1000)
    assert exchange.answer == "x" * 1000
    assert (exchange.finish, exchange.tag, exchange.answer_stored) == ("max_content_bytes", "incomplete", True)


def test_a_chat_goes_on_when_nothing_can_be_stored(settings: Settings, server: ChatServer) -> None:
    nowhere = settings.model_copy(update={"spool": False})
    (exchange,) = ask(nowhere, server, "hello")
    assert exchange.answer == ANSWER
    assert not exchange.question_stored
    assert any("the user's turn was not stored: no Redis at" in trouble for trouble in exchange.troubles)


def test_lines_are_answered_one_by_one_and_a_bad_one_is_no_end(live_settings: Settings, server: ChatServer) -> None:
    lines = "first\n\n第二\xff\n".encode("latin-1", "ignore") + "第二\n".encode() + b"\xff third\n"
    result = run(live_settings, server, stdin=lines)
    assert result.code == 0, result.err
    assert result.out == f"{ANSWER}\n" * 4
    assert [e.turn_index for e in pushed(live_settings)] == list(range(8))
    assert len({event.session_id for event in pushed(live_settings)}) == 1


def test_ctrl_c_stops_the_answer_keeps_it_and_not_the_program(live_settings: Settings, server: ChatServer) -> None:
    server.behave = hangs(delta("once upon a time"))
    environment = {"SCOPE_RECALL_CHAT_URL": server.url, "SCOPE_RECALL_CHAT_MODEL": "fake"}
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "query.cli", "chat"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=Cli(live_settings.data_dir, environment).full_environment(),
    )
    assert process.stdin
    assert process.stdout
    process.stdin.write(b"tell me a story\n")
    process.stdin.flush()
    assert process.stdout.read(16) == b"once upon a time"
    process.send_signal(signal.SIGINT)
    server.behave = streams()
    out, err = process.communicate(b"another\n", timeout=60)
    assert process.returncode == 1, err
    assert out.decode() == f"\n{ANSWER}\n"
    assert "(interrupted: Ctrl-C)" in err.decode()
    said = [(event.role, event.content, event.tags) for event in pushed(live_settings)]
    assert said[1] == ("assistant", "once upon a time", ("interrupted",))
    assert said[3] == ("assistant", ANSWER, ())


@pytest.mark.parametrize(
    ("args", "reason"),
    [
        (["--once", " "], "--once: empty"),
        (["--json"], "--json needs --once"),
        (["--once", "hi", "--tenant", ""], "tenant: string should have at least 1 character"),
        (["--once", "hi", "--session", "a\nb"], "session_id: holds the control character"),
        (["--once", "hi", "--prompt-template", "/nonexistent/file"], "/nonexistent/file: No such file"),
        (["--once", "hi", "--timeout", "0"], "setting chat_timeout = 0"),
        (["--once", "hi", "--base-url", "localhost"], "setting chat_url = 'localhost': Value error, must start with"),
    ],
)
def test_a_mistake_gets_one_line_and_exit_2(
    settings: Settings, server: ChatServer, args: list[str], reason: str
) -> None:
    result = run(settings, server, *args)
    assert (result.code, "Traceback" in result.err) == (2, False), result.err
    assert reason in result.err + result.out
    assert server.requests == []


def test_the_template_shapes_the_prompt(live_settings: Settings, server: ChatServer, tmp_path: Path) -> None:
    file = tmp_path / "prompt.txt"
    file.write_text("你是$tenant的助手。\n[user]\n问：$question", encoding="utf-8")
    assert run(live_settings, server, "--once", "几点？", "--prompt-template", str(file)).code == 0
    assert server.requests[-1]["messages"] == [
        {"role": "system", "content": "你是default的助手。"},
        {"role": "user", "content": "问：几点？"},
    ]
    file.write_text("$qestion")
    wrong = run(live_settings, server, "--once", "hi", "--prompt-template", str(file))
    assert wrong.code == 2
    assert "unknown field $qestion; did you mean $question?" in wrong.err
