"""Bounds on what callers may ask of the service: requests a second, work at once, size and time of a request."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from threading import Lock
from typing import ParamSpec, TypeVar

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from query.api.problems import RETRY_SECONDS

P = ParamSpec("P")
T = TypeVar("T")

FIRST_GUESS = 0.1
"""Seconds that a piece of work takes, before one was measured."""
NEWEST_SHARE = 0.1
"""Of the newest piece in the mean time that is shown to callers as Retry-After."""


def too_many(message: str, seconds: float) -> HTTPException:
    """429, with the whole seconds after which it is worth another try."""
    return HTTPException(429, message, {"Retry-After": str(max(1, math.ceil(seconds)))})


class Rates:
    """A token bucket for each key: filled at `rate` tokens a second, up to one second's; each request takes one."""

    def __init__(self, rate: float, clock: Callable[[], float] = time.monotonic) -> None:
        """`rate` 0: no limit."""
        self._rate = rate
        self._most = max(1.0, rate)
        self._clock = clock
        self._buckets: dict[str, tuple[float, float]] = {}
        """Key → (tokens, when they were counted)."""

    def take(self, key: str) -> None:
        """Count a request of `key`. Raises `HTTPException` 429."""
        if not self._rate:
            return
        now = self._clock()
        tokens, counted = self._buckets.get(key, (self._most, now))
        tokens = min(self._most, tokens + (now - counted) * self._rate)
        if tokens < 1:
            self._buckets[key] = (tokens, now)
            raise too_many(f"this key makes more than {self._rate:g} requests a second", (1 - tokens) / self._rate)
        self._buckets[key] = (tokens - 1, now)


class Line:
    """Work of one kind on threads of its own: some at once, some in line, and the rest is refused."""

    def __init__(self, name: str, at_once: int, waiting: int) -> None:
        self._name = name
        self._at_once = at_once
        self._room = at_once + waiting
        self._pool = ThreadPoolExecutor(at_once, thread_name_prefix=name)
        self._lock = Lock()
        self._taken = 0
        self._mean = FIRST_GUESS

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """What `work` returns. Raises `HTTPException` 429 when the line is full.

        A caller that stops waiting leaves the line; work that has begun keeps its place until it is done.
        """
        with self._lock:
            if self._taken >= self._room:
                raise too_many(f"{self._taken} {self._name} requests are under way already", self.wait())
            self._taken += 1
        context = copy_context()  # its log lines carry the request's id

        def timed() -> T:
            started = time.monotonic()
            try:
                return context.run(work, *args, **kwargs)
            finally:
                self._mean += NEWEST_SHARE * (time.monotonic() - started - self._mean)

        future = self._pool.submit(timed)
        future.add_done_callback(self._leave)
        return await asyncio.wrap_future(future)

    def close(self) -> None:
        """Begin nothing more."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _leave(self, _: Future[T]) -> None:
        with self._lock:
            self._taken -= 1

    def wait(self) -> float:
        """Seconds until half of the line is done."""
        return self._taken / 2 * self._mean / self._at_once


class BodyAndTime:
    """Bounds the size of a request's body, and the time that it and then its answer take."""

    def __init__(self, app: ASGIApp, *, most_bytes: int, seconds: float) -> None:
        self._app = app
        self._most = most_bytes
        self._seconds = seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            body = await self._body(Headers(scope=scope), receive)
        except ClientDisconnect:
            return
        unread = True

        async def receive_again() -> Message:
            nonlocal unread
            if unread:
                unread = False
                return {"type": "http.request", "body": body, "more_body": False}
            return await receive()

        try:
            async with asyncio.timeout(self._seconds) as timeout:
                await self._app(scope, receive_again, send)
        except TimeoutError:
            if not timeout.expired():
                raise
            # What has begun on a thread comes to its end.
            raise HTTPException(
                503,
                f"no answer within api_timeout, {self._seconds:g} s; what was begun may still be done",
                {"Retry-After": str(RETRY_SECONDS)},
            ) from None

    async def _body(self, headers: Headers, receive: Receive) -> bytes:
        length = headers.get("content-length", "0")
        if length.isdecimal() and int(length[:20]) > self._most:
            raise self._too_large()
        pieces: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(self._seconds):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise ClientDisconnect
                    pieces.append(message.get("body", b""))
                    size += len(pieces[-1])
                    if size > self._most:
                        raise self._too_large()
                    if not message.get("more_body", False):
                        return b"".join(pieces)
        except TimeoutError:
            raise HTTPException(408, f"the body did not come within api_timeout, {self._seconds:g} s") from None

    def _too_large(self) -> HTTPException:
        return HTTPException(
            413, f"body: over the limit of {self._most:,} bytes; send less at once, or raise api_body_bytes"
        )
