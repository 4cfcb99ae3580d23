"""A chat driven by a test: in this process, or as the command that a person runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from click.testing import CliRunner

from chat_server import ChatServer
from producers.connection import connect
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
from workers.stores.scope import Scope

FACT = "My dentist is Dr. Wu, 预约在星期四。"


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


def cli(settings: Settings, server: ChatServer, **environment: str) -> Cli:
    given = {"SCOPE_RECALL_CHAT_URL": server.url, "SCOPE_RECALL_CHAT_MODEL": "fake", **environment}
    return Cli(settings.data_dir, given)


def run(settings: Settings, server: ChatServer, *args: str, stdin: bytes = b"", **environment: str) -> Result:
    """The command in this process: a process of its own takes seconds to start."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("producers.terminal.configure_logging", lambda level: None)  # the logs are the tests' own
        variables = cli(settings, server, **environment).full_environment()
        done = CliRunner().invoke(command.chat, args, input=stdin, env=variables)
    assert isinstance(done.exception, SystemExit | None), done.exception
    return Result(done.exit_code, done.stdout, done.stderr)


def pushed(settings: Settings) -> list[TurnEvent]:
    """What is on the live stream, in order."""
    with connect(settings) as client:
        entries: Any = client.xrange(Keys(settings.key_prefix).stream("live"))
    return [valid_event(fields[EVENT_FIELD]) for _, fields in entries]


def stored(system: Stepped, session: str, tenant: str = "default") -> list[TurnEvent]:
    catalog = Catalog.open(system.settings.catalog_location)
    found = list(catalog.history.turns(Scope(tenant, (session,))))
    catalog.close()
    return found
