"""The query service as the plug-in asks it: JSON over HTTP, within a time that is kept. Network I/O.

An answer's text never reaches an error: it may quote what was asked.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, TypeVar
from urllib.parse import urlsplit

import httpx

from producers.errors import ServiceAway, ServiceLate, ServiceRefused
from producers.hermes.settings import KEY_VARIABLE
from producers.retry_after import seconds_of

T = TypeVar("T")

CONNECT_SHARE = 0.8
"""Of the time for an answer, what a connection may take: an address where nobody is is told from a service that is
late."""
_LOOPBACK = ("localhost", "127.", "::1")
_PASSING = frozenset({HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_EARLY, HTTPStatus.TOO_MANY_REQUESTS})
_LONGEST_REASON = 300
_REASON_FIELDS = ("error", "detail", "title")


class Service:
    """One service, found anew for every question, since it may have been started on another port. Thread-safe."""

    def __init__(self, url: Callable[[], str], key: str | None) -> None:
        self._url = url
        self._key = key
        self._lock = threading.Lock()
        self._client: httpx.Client | None = None
        self._host = ""
        self._closed = False

    def ask(self, path: str, body: dict[str, Any], seconds: float) -> dict[str, Any]:
        """The answer to a POST. Raises `ServiceLate` after `seconds`, `ServiceAway` and `ServiceRefused`."""
        return within(seconds, lambda: self._post(path, body, seconds))

    def close(self) -> None:
        with self._lock:
            self._closed = True
            if self._client is not None:
                self._client.close()

    def _post(self, path: str, body: dict[str, Any], seconds: float) -> dict[str, Any]:
        response = self._send(path, body, seconds)
        if not response.is_success:
            raise _refusal(response)
        try:
            answer = response.json()
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise ServiceAway(f"{response.url}: the answer is no JSON object; is it scope-recall's service?")
        return answer

    def _send(self, path: str, body: dict[str, Any], seconds: float) -> httpx.Response:
        url = self._url()
        try:
            timeout = httpx.Timeout(seconds, connect=CONNECT_SHARE * seconds)
            return self._client_for(url).post(url + path, json=body, timeout=timeout)
        except httpx.ConnectTimeout:
            raise ServiceAway(f"nothing answers at {url}: set url to where the service is") from None
        except httpx.TimeoutException:
            raise ServiceLate(f"{url} did not answer within {seconds:g} s") from None
        except (httpx.HTTPError, httpx.InvalidURL, RuntimeError) as error:  # RuntimeError: closed meanwhile
            raise ServiceAway(
                f"no service at {url} ({type(error).__name__}): start `scope-recall up`, or set url to where it is"
            ) from None

    def _client_for(self, url: str) -> httpx.Client:
        host = urlsplit(url).hostname or ""
        with self._lock:
            if self._closed:
                raise ServiceAway("the session is over")
            if self._client is None or host != self._host:
                # A proxy that the environment names is not asked for this machine's own service.
                if self._client is not None:
                    self._client.close()
                headers = {"Authorization": f"Bearer {self._key}"} if self._key else {}
                self._client = httpx.Client(headers=headers, trust_env=not host.startswith(_LOOPBACK))
                self._host = host
            return self._client


def within(seconds: float, call: Callable[[], T]) -> T:
    """What `call` returns or raises, or `ServiceLate` when it takes longer; httpx bounds each step alone."""
    result: list[T] = []
    failure: list[Exception] = []

    def run() -> None:
        try:
            result.append(call())
        except Exception as error:  # noqa: BLE001  # it is raised by who waits
            failure.append(error)

    thread = threading.Thread(target=run, name="scope-recall-ask", daemon=True)
    thread.start()
    thread.join(seconds)
    if result:
        return result[0]
    if failure:
        raise failure[0]
    raise ServiceLate(f"the service did not answer within {seconds:g} s")


def _refusal(response: httpx.Response) -> Exception:
    code = response.status_code
    if code >= HTTPStatus.INTERNAL_SERVER_ERROR or code in _PASSING:
        message = f"{response.url} answers {code}: {_reason(response)}"
        return ServiceAway(message, retry_after=seconds_of(response.headers.get("Retry-After")))
    hint = f"; set {KEY_VARIABLE} to its key" if code == HTTPStatus.UNAUTHORIZED else ""
    return ServiceRefused(f"{response.url} refuses ({code}): {_reason(response)}{hint}", status=code)


def _reason(response: httpx.Response) -> str:
    """What the service says of its refusal; it names fields and limits."""
    try:
        said = response.json()
    except ValueError:
        return response.reason_phrase
    found = next((said[name] for name in _REASON_FIELDS if said.get(name)), "") if isinstance(said, dict) else ""
    return str(found)[:_LONGEST_REASON] or response.reason_phrase
