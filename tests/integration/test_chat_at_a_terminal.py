"""`scope-recall chat` at a terminal: the person's keys do what they should."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from chat_server import ANSWER, ChatServer, chat_server, delta, hangs, streams
from chatting import cli, pushed
from producers.settings import Settings

pytestmark = pytest.mark.integration

CTRL_C, CTRL_D = b"\x03", b"\x04"


@pytest.fixture
def server() -> Iterator[ChatServer]:
    with chat_server() as server:
        yield server


class Person:
    """Types at the chat and reads what it shows."""

    def __init__(self, master: int) -> None:
        self._master = master
        self._shown = ""

    def reads(self, text: str) -> None:
        """Wait until `text` is shown, behind what was read before."""
        deadline = time.monotonic() + 60
        while text not in self._shown:
            assert time.monotonic() < deadline, self._shown
            self._shown += os.read(self._master, 65536).decode(errors="replace")
        self._shown = self._shown.partition(text)[2]

    def types(self, keys: bytes) -> None:
        os.write(self._master, keys)


def test_keys_stop_an_answer_and_end_the_chat(live_settings: Settings, server: ChatServer) -> None:
    server.behave = hangs(delta("an \x1b[31mendless story"))
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "query.cli", "chat", "--session", "tty"],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env=cli(live_settings, server).full_environment() | {"TERM": "dumb"},
        start_new_session=True,
        preexec_fn=_own_terminal,
    )
    os.close(slave)
    person = Person(master)
    person.reads("session tty of tenant default; Ctrl-C stops an answer, Ctrl-D ends")
    person.reads("> ")
    person.types("讲个故事\n".encode())
    person.reads("an \ufffd[31mendless story")
    person.types(CTRL_C)
    person.reads("(interrupted: Ctrl-C)")
    person.reads("> ")
    person.types(CTRL_C)
    person.reads("Ctrl-D ends the chat")
    server.behave = streams()
    person.types(b"and now?\n")
    person.reads(ANSWER)
    person.reads("> ")
    person.types(CTRL_D)
    assert process.wait(30) == 1, "an answer was not whole"
    os.close(master)
    assert [event.content for event in pushed(live_settings)] == [
        "讲个故事",
        "an \x1b[31mendless story",
        "and now?",
        ANSWER,
    ]


def _own_terminal() -> None:
    """The terminal's keys become signals for the child."""
    import fcntl
    import termios

    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
