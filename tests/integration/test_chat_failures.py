"""`scope-recall chat` when the model, the stores or the person fail: a clear message, and what was said is kept."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from chat_server import ANSWER, ChatServer, breaks_off, chat_server, delta, fails, hangs, streams
from chatting import FACT, Quiet, ask, cli, pushed, run
from producers.settings import Settings

pytestmark = pytest.mark.integration


@pytest.fixture
def server() -> Iterator[ChatServer]:
    with chat_server() as server:
        yield server


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
    assert "Ctrl-C" not in result.err


@pytest.mark.parametrize(
    ("behave", "said", "tag"),
    [
        (breaks_off(delta("half an ans")), "half an ans", "incomplete"),
        (hangs(delta("and then")), "and then", "incomplete"),
        (streams(delta("no end is said")), "no end is said", "incomplete"),
        (streams(delta("let me look", finish_reason="tool_calls")), "let me look", "incomplete"),
        (streams(delta("too long", finish_reason="length")), "too long", "incomplete"),
        (streams(delta("whole", finish_reason="stop")), "whole", None),
        (streams(delta("with a \x00 in it", finish_reason="stop")), "with a \ufffd in it", None),
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


@pytest.mark.parametrize("end", [BrokenPipeError, SystemExit])
def test_what_has_come_is_kept_when_the_reader_goes_or_the_program_ends(
    live_settings: Settings, server: ChatServer, end: type[BaseException]
) -> None:
    def leave() -> None:
        raise end

    with pytest.raises(end):
        ask(live_settings, server, "go on", display=Quiet(leave))
    event = pushed(live_settings)[-1]
    assert (event.role, event.content, event.tags) == ("assistant", ANSWER.split()[0] + " ", ("interrupted",))


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
    lines = ["first", "", "第二", "a\ud800b"]
    typed = "\r\n".join(lines).encode(errors="surrogatepass") + b"\n\xff third"
    result = run(live_settings, server, stdin=typed)
    assert result.code == 0, result.err
    assert result.out == f"{ANSWER}\n" * 4
    events = pushed(live_settings)
    assert [event.turn_index for event in events] == list(range(8))
    assert [event.content for event in events[::2]] == ["first", "第二", "a\ufffd\ufffd\ufffdb", "\ufffd third"]
    assert len({event.session_id for event in events}) == 1


def test_ctrl_c_stops_the_answer_keeps_it_and_not_the_program(live_settings: Settings, server: ChatServer) -> None:
    server.behave = hangs(delta("once upon a time"))
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "query.cli", "chat"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=cli(live_settings, server).full_environment(),
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


def test_sigterm_keeps_what_has_come(live_settings: Settings, server: ChatServer) -> None:
    server.behave = hangs(delta("once upon a time"))
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "query.entry", "chat", "--once", "a story"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=cli(live_settings, server).full_environment(),
    )
    assert process.stdout
    assert process.stdout.read(16) == b"once upon a time"
    process.terminate()
    _, err = process.communicate(timeout=60)
    assert (process.returncode, b"Traceback" in err) == (1, False), err
    said = [(event.role, event.content, event.tags) for event in pushed(live_settings)]
    assert said[1] == ("assistant", "once upon a time", ("interrupted",))


@pytest.mark.parametrize(
    ("args", "reason"),
    [
        (["--once", " "], "--once: empty"),
        (["--json"], "--json needs --once"),
        (["--once", "hi", "--tenant", ""], "tenant: string should have at least 1 character"),
        (["--once", "hi", "--session", "a\nb"], "session_id: holds the control character"),
        (["--once", "hi", "--prompt-template", "/nonexistent/file"], "/nonexistent/file: No such file"),
        (["--once", "hi", "--timeout", "0"], "setting chat_timeout = 0"),
        (["--once", "hi", "--base-url", "localhost"], "setting chat_url = 'localhost': must start with"),
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
