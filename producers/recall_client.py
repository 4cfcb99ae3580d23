"""Clients of the query service: recall, push, history, forget and status over HTTP. Does network I/O.

    with RecallClient() as memory:
        print(memory.recall("which port does the proxy use?", tenant="acme").context)

Connections stay open between calls. Each call ends within its `timeout`, retries included: it is tried again when the
connection fails and when the service asks for patience (Retry-After). Errors: `ServiceAway` when it is worth trying
again later, `ServiceRefused` for the key, `InvalidRequest` with the field for a request that is wrong.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from types import TracebackType
from typing import Any, Self, Unpack
from urllib.parse import quote

from producers.calls import DEFAULT_URL, AsyncCaller, Caller, call_name, json_body
from producers.client import send, send_async
from producers.errors import InvalidRequest
from producers.recall_answers import (
    CountOptions,
    Forgotten,
    HistoryOptions,
    Kind,
    RecallAnswer,
    RecallOptions,
    ServiceStatus,
    Sessions,
    SessionsOptions,
    SessionTurns,
    TextCount,
    read_as,
)
from producers.settings import Settings, load_settings
from producers.turn_batches import Push, Turn

RECALL_PATH, FORGET_PATH, STATUS_PATH = "/v1/recall", "/v1/forget", "/v1/status"
SESSIONS_PATH, COUNT_PATH = "/v1/sessions", "/v1/count"
TIMEOUT = 30.0
"""Seconds; a service that has just been started loads its models at the first recall."""
FORGET_TIMEOUT = 600.0
"""Erasing searches every file afterwards."""
RETRIES = 2
LISTS = frozenset({"sessions", "agents", "roles", "tags", "sources", "exclude_sessions", "code_languages"})


class RecallClient:
    """Asks the query service. Safe for several threads; use it as a context manager, or call `close`."""

    def __init__(self, url: str = DEFAULT_URL, *, api_key: str | None = None, timeout: float = TIMEOUT) -> None:
        """`timeout`: seconds that a call may take, unless it names its own. Raises `UsageError` for a wrong URL or key.

        Connects at the first call.
        """
        self._caller = Caller(url, api_key, RETRIES)
        self._timeout = timeout

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._caller.close()

    def recall(self, query: str, *, timeout: float | None = None, **options: Unpack[RecallOptions]) -> RecallAnswer:
        """The turns that answer `query` within one tenant, with a block of context for the prompt."""
        answer = self._caller.call("POST", RECALL_PATH, recall_body(query, options), self._seconds(timeout))
        return read_as(RecallAnswer, answer, call_name(self._caller.url, RECALL_PATH))

    def sessions(self, *, timeout: float | None = None, **options: Unpack[SessionsOptions]) -> Sessions:
        """A tenant's sessions, those that went on last first."""
        return self._get(Sessions, SESSIONS_PATH, options, timeout)

    def history(
        self, session_id: str, *, timeout: float | None = None, **options: Unpack[HistoryOptions]
    ) -> SessionTurns:
        """The turns of a session, whole and in order; at most 1,000 in one answer, see `SessionTurns.left_out`."""
        return self._get(SessionTurns, turns_path(session_id), options, timeout)

    def count(self, text: str, *, timeout: float | None = None, **options: Unpack[CountOptions]) -> TextCount:
        """In how many turns `text` is said, and how often: no pattern, whatever its case and width."""
        return self._get(TextCount, COUNT_PATH, {"text": text, **options}, timeout)

    def push(
        self, turns: Turn | Iterable[Turn], *, timeout: float | None = None, settings: Settings | None = None
    ) -> int:
        """Push turns, as `producers.client.Producer` does; `timeout` is for each batch. Returns how many were accepted.

        Raises `TurnsRejected` once all others are accepted.
        """
        push = Push()
        for batch in push.batches(turns, settings or load_settings()):
            send(self._caller, push, batch, self._seconds(timeout))
        return push.result()

    def forget(
        self,
        tenant: str | None = None,
        *,
        session: str | None = None,
        agent: str | None = None,
        before: datetime | None = None,
        dry_run: bool = False,
        timeout: float = FORGET_TIMEOUT,
    ) -> Forgotten:
        """Erase a tenant's turns, or those of its session or agent or said before a moment; `dry_run` only counts."""
        body = forget_body(tenant, session, agent, before, dry_run=dry_run)
        answer = self._caller.call("POST", FORGET_PATH, body, timeout)
        return read_as(Forgotten, answer, call_name(self._caller.url, FORGET_PATH))

    def status(self, *, timeout: float | None = None) -> ServiceStatus:
        """What the system is doing, and what is degraded."""
        return self._get(ServiceStatus, STATUS_PATH, {}, timeout)

    def _get(self, kind: type[Kind], path: str, asked: Mapping[str, Any], timeout: float | None) -> Kind:
        answer = self._caller.call("GET", path + query_string(asked), None, self._seconds(timeout))
        return read_as(kind, answer, call_name(self._caller.url, path))

    def _seconds(self, timeout: float | None) -> float:
        return self._timeout if timeout is None else timeout


class AsyncRecallClient:
    """The same for asyncio."""

    def __init__(self, url: str = DEFAULT_URL, *, api_key: str | None = None, timeout: float = TIMEOUT) -> None:
        """As `RecallClient`."""
        self._caller = AsyncCaller(url, api_key, RETRIES)
        self._timeout = timeout

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._caller.close()

    async def recall(
        self, query: str, *, timeout: float | None = None, **options: Unpack[RecallOptions]
    ) -> RecallAnswer:
        """As `RecallClient.recall`."""
        answer = await self._caller.call("POST", RECALL_PATH, recall_body(query, options), self._seconds(timeout))
        return read_as(RecallAnswer, answer, call_name(self._caller.url, RECALL_PATH))

    async def sessions(self, *, timeout: float | None = None, **options: Unpack[SessionsOptions]) -> Sessions:
        """As `RecallClient.sessions`."""
        return await self._get(Sessions, SESSIONS_PATH, options, timeout)

    async def history(
        self, session_id: str, *, timeout: float | None = None, **options: Unpack[HistoryOptions]
    ) -> SessionTurns:
        """As `RecallClient.history`."""
        return await self._get(SessionTurns, turns_path(session_id), options, timeout)

    async def count(self, text: str, *, timeout: float | None = None, **options: Unpack[CountOptions]) -> TextCount:
        """As `RecallClient.count`."""
        return await self._get(TextCount, COUNT_PATH, {"text": text, **options}, timeout)

    async def push(
        self, turns: Turn | Iterable[Turn], *, timeout: float | None = None, settings: Settings | None = None
    ) -> int:
        """As `RecallClient.push`."""
        push = Push()
        for batch in push.batches(turns, settings or load_settings()):
            await send_async(self._caller, push, batch, self._seconds(timeout))
        return push.result()

    async def forget(
        self,
        tenant: str | None = None,
        *,
        session: str | None = None,
        agent: str | None = None,
        before: datetime | None = None,
        dry_run: bool = False,
        timeout: float = FORGET_TIMEOUT,
    ) -> Forgotten:
        """As `RecallClient.forget`."""
        body = forget_body(tenant, session, agent, before, dry_run=dry_run)
        answer = await self._caller.call("POST", FORGET_PATH, body, timeout)
        return read_as(Forgotten, answer, call_name(self._caller.url, FORGET_PATH))

    async def status(self, *, timeout: float | None = None) -> ServiceStatus:
        """As `RecallClient.status`."""
        return await self._get(ServiceStatus, STATUS_PATH, {}, timeout)

    async def _get(self, kind: type[Kind], path: str, asked: Mapping[str, Any], timeout: float | None) -> Kind:
        answer = await self._caller.call("GET", path + query_string(asked), None, self._seconds(timeout))
        return read_as(kind, answer, call_name(self._caller.url, path))

    def _seconds(self, timeout: float | None) -> float:
        return self._timeout if timeout is None else timeout


def recall_body(query: str, options: RecallOptions) -> bytes:
    """The body of `POST /v1/recall`. Raises `InvalidRequest` for what cannot be sent."""
    values: dict[str, Any] = {"query": query, **options}
    return json_body({name: _plain(name, value) for name, value in values.items() if value is not None})


def forget_body(
    tenant: str | None, session: str | None, agent: str | None, before: datetime | None, *, dry_run: bool
) -> bytes:
    """The body of `POST /v1/forget`."""
    values = {"tenant": tenant, "session": session, "agent": agent, "before": before, "dry_run": dry_run or None}
    return json_body({name: _plain(name, value) for name, value in values.items() if value is not None})


def turns_path(session_id: str) -> str:
    """The path of `GET /v1/sessions/{session_id}/turns`. Raises `InvalidRequest` for an id that is not text."""
    # A dot is encoded as well: what is between here and the service may take `..` for a folder.
    return f"{SESSIONS_PATH}/{_encoded('session_id', session_id).replace('.', '%2E')}/turns"


def query_string(asked: Mapping[str, Any]) -> str:
    """The end of a URL that says what is asked, or nothing. Raises `InvalidRequest` for what cannot be sent."""
    parts = []
    for name, value in asked.items():
        plain = _plain(name, value)
        for one in plain if isinstance(plain, list) else [] if plain is None else [plain]:
            parts.append(f"{name}={_encoded(name, str(one))}")
    return "?" + "&".join(parts) if parts else ""


def _encoded(name: str, text: str) -> str:
    try:
        return quote(text, safe="")
    except UnicodeEncodeError:
        raise InvalidRequest(f"{name}: holds a lone surrogate, which is not text", name) from None


def _plain(name: str, value: Any) -> Any:
    """`value` as JSON has it. One string where several are due is refused: it would search for its letters."""
    if isinstance(value, datetime):
        return value.isoformat()
    if name in LISTS:
        if isinstance(value, str | Mapping) or not isinstance(value, Iterable):
            raise _wrong(name, "a list", value)
        return list(value)
    if name == "where":
        if not isinstance(value, Mapping):
            raise _wrong(name, "a mapping of keys to values", value)
        return dict(value)
    if name == "exclude_recent":
        if not isinstance(value, Mapping):
            raise _wrong(name, "a mapping of sessions to numbers of turns", value)
        return [{"session_id": session, "turns": turns} for session, turns in value.items()]
    if name == "why":
        if not isinstance(value, tuple | list) or len(value) != 2:
            raise _wrong(name, "(session, index of a turn)", value)
        return {"session_id": value[0], "turn_index": value[1]}
    return value


def _wrong(name: str, due: str, value: object) -> InvalidRequest:
    return InvalidRequest(f"{name}: {due} is due, got {type(value).__name__}", name)
