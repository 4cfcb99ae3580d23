"""Producers: what an agent pushes its turns with, onto the Redis stream or over HTTP to the query service. Does I/O.

    with Producer() as producer:
        producer.push({"session_id": "s1", "turn_index": 0, "role": "user", "content": "hello"})

A push returns when the turns are accepted: by Redis, by this machine's spool while Redis is away, or by the service.
Pushing a turn again changes nothing, so a push that failed can be repeated whole.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from threading import Lock
from types import TracebackType
from typing import Self

from producers.calls import AsyncCaller, Caller, closed_error
from producers.errors import InvalidRequest, TurnsRejected
from producers.events import TurnEvent
from producers.settings import Settings, load_settings
from producers.stream import EventStream
from producers.turn_batches import BATCH_TURNS, Item, Push, Turn, checked, turns_body

TURNS_PATH = "/v1/turns"
TIMEOUT = 30.0
"""Seconds for one request, with its retries."""
RETRIES = 5
"""Attempts after a failed connection: some 3 s, in which a service restarts."""


class _Stream:
    """Onto the stream, with its spool."""

    def __init__(self, settings: Settings) -> None:
        self._stream = EventStream(settings)
        self._lock = Lock()  # a push whose task was cancelled goes on in its thread

    def send(self, push: Push, batch: list[Item]) -> None:
        with self._lock:
            push.accepted += self._stream.append(item.event for item in batch)

    def waiting(self) -> int:
        return self._stream.spooled().events

    def close(self) -> None:
        self._stream.close()


class _Service:
    """To the query service."""

    def __init__(self, url: str, api_key: str | None, timeout: float) -> None:
        self._caller = Caller(url, api_key, RETRIES)
        self._timeout = timeout

    def send(self, push: Push, batch: list[Item]) -> None:
        send(self._caller, push, batch, self._timeout)

    def waiting(self) -> int:
        return 0

    def close(self) -> None:
        self._caller.close()


class Producer:
    """Pushes turns. Safe for several threads; use it as a context manager, or call `close`."""

    def __init__(
        self,
        url: str | None = None,
        *,
        api_key: str | None = None,
        timeout: float = TIMEOUT,
        settings: Settings | None = None,
    ) -> None:
        """Without `url`: the Redis of the settings, which are read from the environment unless given. With `url`: the
        query service there, with its `api_key`, each request within `timeout` seconds.

        Raises `UsageError` for a URL, key or setting that cannot be right. Connects at the first push.
        """
        self._settings = settings or load_settings()
        self._sink = _Stream(self._settings) if url is None else _Service(url, api_key, timeout)
        self._held: list[TurnEvent] = []
        self._is_closed = False
        self._lock = Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def push(self, turns: Turn | Iterable[Turn]) -> int:
        """Push one turn or many, in order, in batches; what `add` holds goes first. Returns how many were accepted.

        Raises `TurnsRejected` once all others are accepted; `StreamFull`, `SpoolFull`, `StreamUnavailable` or
        `ServiceAway` when it is worth trying again; `ServiceRefused` when the key is.
        """
        with self._open():
            self._flush()
            return self._push(turns)

    def add(self, turn: Turn) -> None:
        """Hold a turn in memory until there are 500, then push them. Raises `InvalidEvent` at once for a wrong one."""
        event = checked(turn, self._settings)
        with self._open():
            self._held.append(event)
            if len(self._held) >= BATCH_TURNS:
                self._flush()

    def flush(self) -> None:
        """Push what `add` holds. When that fails it is still held, and `flush` can be called again."""
        with self._open():
            self._flush()

    @property
    def waiting(self) -> int:
        """Accepted turns that wait on this machine, since Redis is away."""
        return self._sink.waiting()

    def close(self) -> None:
        """Push what is held and let go, also of what could not be pushed. Any other call is a `UsageError` then."""
        with self._lock:
            try:
                self._flush()
            finally:
                self._is_closed, self._held = True, []
                self._sink.close()

    @contextmanager
    def _open(self) -> Iterator[None]:
        with self._lock:
            if self._is_closed:
                raise closed_error()
            yield

    def _flush(self) -> None:
        if self._held:
            try:
                self._push(self._held)
            except TurnsRejected:
                self._held = []  # pushing them again would not help, and all others are accepted
                raise
            self._held = []

    def _push(self, turns: Turn | Iterable[Turn]) -> int:
        push = Push()
        for batch in push.batches(turns, self._settings):
            self._sink.send(push, batch)
        return push.result()


class AsyncProducer:
    """The same for asyncio; appends to Redis in a thread, so that the loop goes on meanwhile."""

    def __init__(
        self,
        url: str | None = None,
        *,
        api_key: str | None = None,
        timeout: float = TIMEOUT,
        settings: Settings | None = None,
    ) -> None:
        """As `Producer`."""
        self._settings = settings or load_settings()
        self._stream = _Stream(self._settings) if url is None else None
        self._caller = None if url is None else AsyncCaller(url, api_key, RETRIES)
        self._timeout = timeout
        self._held: list[TurnEvent] = []
        self._is_closed = False
        self._lock = asyncio.Lock()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def push(self, turns: Turn | Iterable[Turn]) -> int:
        """As `Producer.push`."""
        async with self._open():
            await self._flush()
            return await self._push(turns)

    async def add(self, turn: Turn) -> None:
        """As `Producer.add`."""
        event = checked(turn, self._settings)
        async with self._open():
            self._held.append(event)
            if len(self._held) >= BATCH_TURNS:
                await self._flush()

    async def flush(self) -> None:
        """As `Producer.flush`."""
        async with self._open():
            await self._flush()

    @property
    def waiting(self) -> int:
        """As `Producer.waiting`."""
        return self._stream.waiting() if self._stream else 0

    async def close(self) -> None:
        """As `Producer.close`."""
        async with self._lock:
            try:
                await self._flush()
            finally:
                self._is_closed, self._held = True, []
                if self._caller:
                    await self._caller.close()
                if self._stream:
                    await asyncio.to_thread(self._stream.close)

    @asynccontextmanager
    async def _open(self) -> AsyncIterator[None]:
        async with self._lock:
            if self._is_closed:
                raise closed_error()
            yield

    async def _flush(self) -> None:
        if self._held:
            try:
                await self._push(self._held)
            except TurnsRejected:
                self._held = []
                raise
            self._held = []

    async def _push(self, turns: Turn | Iterable[Turn]) -> int:
        push = Push()
        for batch in push.batches(turns, self._settings):
            await self._send(push, batch)
        return push.result()

    async def _send(self, push: Push, batch: list[Item]) -> None:
        if self._stream:
            await asyncio.to_thread(self._stream.send, push, batch)
        if self._caller:
            await send_async(self._caller, push, batch, self._timeout)


def send(caller: Caller, push: Push, batch: list[Item], timeout: float) -> None:
    """Send a batch to the service; one that it refuses whole is sent in halves, to find the turn that is to blame."""
    try:
        push.read(batch, caller.call("POST", TURNS_PATH, turns_body(batch), timeout))
    except InvalidRequest as refusal:
        for half in push.halves(batch, refusal):
            send(caller, push, half, timeout)


async def send_async(caller: AsyncCaller, push: Push, batch: list[Item], timeout: float) -> None:
    """As `send`."""
    try:
        push.read(batch, await caller.call("POST", TURNS_PATH, turns_body(batch), timeout))
    except InvalidRequest as refusal:
        for half in push.halves(batch, refusal):
            await send_async(caller, push, half, timeout)
