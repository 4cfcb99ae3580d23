"""HTTP calls of the query service: one policy of time-outs, retries and errors, for callers with and without asyncio.

Every call of the service can be repeated without harm, so all of them are: when the connection fails, and when the
service asks for patience, until the call's time is over. Does network I/O.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import httpx

from producers.answers import BUSY, Answered
from producers.errors import InvalidRequest, ServiceAway, UnexpectedAnswer, UsageError
from producers.settings import without_password

DEFAULT_URL = "http://127.0.0.1:8420"
"""Where the service of `up` and `serve` is."""
CONNECT_SECONDS = 5.0
FIRST_WAIT = 0.1
LONGEST_WAIT = 2.0
"""Seconds between two attempts, doubling."""
POOL = httpx.Limits(max_connections=100, max_keepalive_connections=20, keepalive_expiry=30)
LONGEST_TIMEOUT = 1_000_000.0
"""Seconds, eleven days; what a socket can count ends a little later."""
LARGEST_ANSWER = 64 << 20
"""Bytes; more is not the answer to any question."""


@dataclass
class Attempts:
    """Of one call: how much time is left, and how long to wait before it is tried again."""

    name: str
    """The service and the call, as errors name it."""
    timeout: float
    retries: int

    def __post_init__(self) -> None:
        if not (isinstance(self.timeout, int | float) and 0 < self.timeout <= LONGEST_TIMEOUT):
            raise UsageError(f"timeout = {self.timeout}: seconds above 0 are due, {LONGEST_TIMEOUT:,.0f} at most")
        self._deadline = time.monotonic() + self.timeout
        self._wait = FIRST_WAIT / 2
        self._failed = 0

    def left(self) -> float:
        """Seconds; raises `ServiceAway` when there are none."""
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise ServiceAway(f"{self.name} took longer than timeout = {self.timeout:g} s")
        return left

    def timeouts(self) -> httpx.Timeout:
        left = self.left()
        return httpx.Timeout(left, connect=min(left, CONNECT_SECONDS))

    def wait_after(self, outcome: Answered | httpx.RequestError) -> float | None:
        """Seconds until the next attempt; None when the outcome stands."""
        self._wait = min(LONGEST_WAIT, self._wait * 2)
        wait = self._wait
        if isinstance(outcome, Answered):
            if outcome.status not in BUSY:
                return None
            wait = max(wait, outcome.retry_after or 0.0)
        if not isinstance(outcome, Answered) or outcome.retry_after is None:
            self._failed += 1
            if self._failed > self.retries:
                return None
        return wait if time.monotonic() + wait < self._deadline else None

    def result(self, outcome: Answered | httpx.RequestError) -> Any:
        """The answer's JSON, or raise what it means."""
        if isinstance(outcome, Answered):
            return outcome.result(self.name)
        if isinstance(outcome, httpx.TimeoutException):
            raise ServiceAway(f"{self.name} took longer than timeout = {self.timeout:g} s") from None
        said = str(outcome) or type(outcome).__name__
        raise ServiceAway(
            f"{self.name} cannot be reached ({said}): start it with `scope-recall up` or `scope-recall serve`, or "
            "check its URL"
        ) from None


class Caller:
    """Calls of one service, over a pool of connections that stay open. Safe for several threads."""

    def __init__(self, url: str, api_key: str | None, retries: int) -> None:
        self.url = checked_url(url)
        self._retries = retries
        self._client = httpx.Client(headers=headers(api_key), limits=POOL, trust_env=not is_loopback(self.url))

    def close(self) -> None:
        self._client.close()

    def call(self, method: str, path: str, body: bytes | None, timeout: float) -> Any:
        """The JSON of the answer, within `timeout` seconds with all retries. Raises errors of the tree."""
        attempts = Attempts(call_name(self.url, path), timeout, self._retries)
        if self._client.is_closed:
            raise closed_error()
        while True:
            outcome: Answered | httpx.RequestError
            try:
                outcome = self._once(method, path, body, attempts)
            except httpx.RequestError as error:
                outcome = error
            wait = attempts.wait_after(outcome)
            if wait is None:
                return attempts.result(outcome)
            time.sleep(wait)

    def _once(self, method: str, path: str, body: bytes | None, attempts: Attempts) -> Answered:
        with self._client.stream(method, self.url + path, content=body, timeout=attempts.timeouts()) as response:
            body_read = bytearray()
            for part in response.iter_bytes():
                _keep(body_read, part, attempts)
        return Answered(response.status_code, response.headers, bytes(body_read))


class AsyncCaller:
    """The same for asyncio."""

    def __init__(self, url: str, api_key: str | None, retries: int) -> None:
        self.url = checked_url(url)
        self._retries = retries
        self._client = httpx.AsyncClient(headers=headers(api_key), limits=POOL, trust_env=not is_loopback(self.url))

    async def close(self) -> None:
        await self._client.aclose()

    async def call(self, method: str, path: str, body: bytes | None, timeout: float) -> Any:
        """As `Caller.call`."""
        attempts = Attempts(call_name(self.url, path), timeout, self._retries)
        if self._client.is_closed:
            raise closed_error()
        while True:
            outcome: Answered | httpx.RequestError
            try:
                outcome = await self._once(method, path, body, attempts)
            except httpx.RequestError as error:
                outcome = error
            except TimeoutError:
                outcome = httpx.ReadTimeout("")
            wait = attempts.wait_after(outcome)
            if wait is None:
                return attempts.result(outcome)
            await asyncio.sleep(wait)

    async def _once(self, method: str, path: str, body: bytes | None, attempts: Attempts) -> Answered:
        url, timeouts = self.url + path, attempts.timeouts()
        body_read = bytearray()
        async with (
            asyncio.timeout(attempts.left()),
            self._client.stream(method, url, content=body, timeout=timeouts) as response,
        ):
            async for part in response.aiter_bytes():
                _keep(body_read, part, attempts)
        return Answered(response.status_code, response.headers, bytes(body_read))


def _keep(body_read: bytearray, part: bytes, attempts: Attempts) -> None:
    """Also an answer that trickles ends in time."""
    attempts.left()
    body_read += part
    if len(body_read) > LARGEST_ANSWER:
        raise UnexpectedAnswer(f"{attempts.name} answered more than {LARGEST_ANSWER:,} bytes")


def closed_error() -> UsageError:
    """What a call of a closed client raises."""
    return UsageError("this client is closed; close it when nothing more follows, or make another one")


def call_name(url: str, path: str) -> str:
    """The call as errors name it, without what it asks."""
    return f"the query service at {without_password(url)}{path.partition('?')[0]}"


def checked_url(url: str) -> str:
    """`url` without a slash at its end. Raises `UsageError`."""
    try:
        parsed = httpx.URL(url)
    except (httpx.InvalidURL, TypeError) as error:
        raise UsageError(f"url {without_password(str(url))!r}: {error}") from None
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise UsageError(
            f"url {without_password(url)!r}: http://HOST:PORT or https://HOST is due, such as {DEFAULT_URL}"
        )
    return url.rstrip("/")


def is_loopback(url: str) -> bool:
    """Whether `url` leads to this machine, so that no proxy of the environment may stand in between."""
    host = httpx.URL(url).host
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def headers(api_key: str | None) -> dict[str, str]:
    """Of every call. Raises `UsageError` for a key that no header can carry, without showing it."""
    given = {"Content-Type": "application/json", "Accept": "application/json"}
    if api_key is None:
        return given
    if not (api_key and api_key.isascii() and api_key.isprintable() and " " not in api_key):
        raise UsageError("api_key: empty, or with characters that no key has (spaces, line breaks, other than ASCII)")
    return {**given, "Authorization": f"Bearer {api_key}"}


def json_body(values: Mapping[str, Any]) -> bytes:
    """Raises `UsageError` naming the field that cannot be sent."""
    parts = []
    for name, value in values.items():
        try:
            text = json.dumps(value, ensure_ascii=False, allow_nan=False)
            parts.append(f"{json.dumps(name)}:{text}".encode())
        except UnicodeEncodeError:
            raise InvalidRequest(f"{name}: holds a lone surrogate, which is not text", name) from None
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidRequest(f"{name}: cannot be sent as JSON: {error}", name) from None
    return b"{" + b",".join(parts) + b"}"
