"""The memory provider as Hermes drives it: every call of its interface, handed to the part that does it.

Nothing here waits longer than a local write, but `prefetch`, which has its budget, and the tools. Whatever goes wrong
is logged without what was said, and the conversation goes on.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from producers.errors import ScopeRecallError, SettingsError
from producers.hermes import settings as own
from producers.hermes.connections import Connections
from producers.hermes.identity import memory_of
from producers.hermes.notes import mirror
from producers.hermes.pause import log
from producers.hermes.prompt import BLOCK
from producers.hermes.session import Session
from producers.hermes.tools import SCHEMAS
from producers.hermes.trivial import is_trivial
from producers.hermes.turns import questions

NAME = "scope-recall"
CLOSE_SECONDS = 2.0
"""For turns that wait; what is left stays on the disk."""
PROBE_SECONDS = 1.0
WAIT_SHARE = 0.95
"""Of the budget, what is waited for; the rest is for a thread that wakes late on a busy machine."""
_FACTS = ("platform", "user_name", "chat_name", "chat_type")
"""Of what Hermes says of a session, what becomes metadata of its turns."""


class ScopeRecallProvider:
    """Duck-typed: `producers.hermes.plugin` makes it a `MemoryProvider` where there is one."""

    def __init__(self) -> None:
        self._settings = own.HermesSettings.model_validate({})
        self._session = Session("")
        self._connections: Connections | None = None
        self._writes = False
        """Sub-agents and cron jobs read only: what they say is no conversation."""

    @property
    def name(self) -> str:
        return NAME

    def is_available(self) -> bool:
        """Whether the settings can be read; no network."""
        try:
            own.load(hermes_home()).common()
        except SettingsError as error:
            log.error("scope-recall is not used: %s", error)
            return False
        return True

    def initialize(self, session_id: str, **kwargs: Any) -> None:
        """Begin with a session. Raises `SettingsError`, which Hermes logs, and goes on without memory."""
        self.shutdown()
        home = Path(str(kwargs.get("hermes_home") or hermes_home()))
        self._settings = own.load(home)
        memory = memory_of(home, session_id, kwargs, self._settings.tenant)
        facts = {name: str(kwargs[name]) for name in _FACTS if kwargs.get(name)}
        self._session = Session(session_id, str(kwargs.get("parent_session_id") or ""))
        primary = kwargs.get("agent_context", "primary") == "primary"
        self._writes = primary and kwargs.get("platform") != "cron"
        self._connections = Connections.open(home, self._settings, memory, facts)
        self._follow()

    def system_prompt_block(self) -> str:
        return BLOCK if self._connections is not None else ""

    def prefetch(self, query: str, *, session_id: str = "") -> str:
        """What is recalled for the prompt; empty for one that asks nothing, and when the service is away or late."""
        open_ = self._connections
        if open_ is None or is_trivial(query):
            return ""
        before = self._session.before if session_id in ("", self._session.id) else ""
        return open_.recalling.block(query, WAIT_SHARE * self._settings.budget_ms / 1000, before)

    def queue_prefetch(self, query: str, *, session_id: str = "") -> None:
        """Between two turns: see whether a service that was away is back; the next question is not known."""
        if self._connections is not None:
            self._connections.recalling.look_again(min(PROBE_SECONDS, self._settings.budget_ms / 1000))

    def sync_turn(
        self,
        user_content: str,
        assistant_content: str,
        *,
        session_id: str = "",
        messages: Sequence[dict[str, Any]] | None = None,
    ) -> None:
        """Both turns: on the stream or on the disk when it returns. Raises `RetryableError` where neither is so."""
        open_, session = self._connections, self._session
        if open_ is None or not self._writes:
            return
        name = session_id or session.id
        question, answer = open_.writer.clean(user_content), open_.writer.clean(assistant_content)
        asked = None
        if session.rewound and name == session.id:
            session.rewound = False
            asked = [open_.writer.clean(said) for said in questions(messages)] if messages else None
        index = open_.ledger.index_of(name, question, answer, asked)
        parent = session.parent if name == session.id else ""
        events = open_.writer.exchange(name, index, (question, answer), datetime.now(UTC), parent)
        if events:
            open_.sender.send(events)
            open_.courier.wake()
        if name == session.id:
            session.said(events)
            self._follow()

    def get_tool_schemas(self) -> list[dict[str, Any]]:
        return SCHEMAS

    def handle_tool_call(self, tool_name: str, args: dict[str, Any], **kwargs: Any) -> str:
        """The tool's result, as JSON."""
        if self._connections is None:
            return '{"error": "scope-recall is not initialized"}'
        return self._connections.tools.call(tool_name, args)

    def on_turn_start(self, turn_number: int, message: str, **kwargs: Any) -> None:
        """Nothing: a turn is kept when it is complete."""

    def on_session_end(self, messages: list[dict[str, Any]]) -> None:
        """Every turn has been handed over by then; what waits is sent now."""
        if self._connections is not None:
            self._connections.courier.wake()

    def on_session_switch(
        self,
        new_session_id: str,
        *,
        parent_session_id: str = "",
        reset: bool = False,
        rewound: bool = False,
        **kwargs: Any,
    ) -> None:
        """Go on in another session, or in this one with less of it."""
        if rewound and new_session_id == self._session.id:
            self._session.rewind()
            return
        reason = str(kwargs.get("reason") or "")
        self._session = self._session.switched(new_session_id, parent_session_id, reset=reset, reason=reason)
        self._follow()

    def on_pre_compress(self, messages: list[dict[str, Any]]) -> str:
        """What is compacted was kept turn by turn, and can be recalled from now on."""
        self._session.compacted()
        self._follow()
        return ""

    def on_delegation(self, task: str, result: str, *, child_session_id: str = "", **kwargs: Any) -> None:
        """A sub-agent's task and result, which it does not hand over itself."""
        open_ = self._connections
        if open_ is None or not self._writes:
            return
        events = open_.writer.delegation(child_session_id, (task, result), datetime.now(UTC), self._session.id)
        if events:
            open_.sender.keep(events)
            open_.courier.wake()

    def on_memory_write(self, action: str, target: str, content: str, metadata: dict[str, Any] | None = None) -> None:
        """The built-in memory tool's writes, as notes."""
        if self._connections is not None and self._writes:
            mirror(self._connections.tools, action, target, content, metadata or {})
            self._connections.courier.wake()

    def get_config_schema(self) -> list[dict[str, Any]]:
        return own.schema()

    def save_config(self, values: dict[str, Any], hermes_home: str) -> None:
        """Raises `SettingsError`, which Hermes' set-up shows."""
        own.save(values, Path(hermes_home))

    def backup_paths(self) -> list[str]:
        """The spool: turns that are nowhere else yet. The rest is in the home, or in `scope-recall backup`."""
        try:
            return [str(own.load(hermes_home()).common().data_dir / "spool")]
        except ScopeRecallError:
            return []

    def shutdown(self) -> None:
        """Send what can be sent in about two seconds; the rest is on the disk."""
        open_, self._connections = self._connections, None
        if open_ is not None:
            open_.close(CLOSE_SECONDS)

    def _follow(self) -> None:
        if self._connections is not None:
            self._connections.recalling.in_context = self._session.in_context


def hermes_home() -> Path:
    """As Hermes finds it; without Hermes from the environment."""
    try:
        get_hermes_home = importlib.import_module("hermes_constants").get_hermes_home
    except ImportError:
        return Path(os.environ.get("HERMES_HOME", "").strip() or Path.home() / ".hermes")
    return Path(get_hermes_home())
