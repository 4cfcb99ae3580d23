"""Who calls, and what they may do: by their key, or on this machine while there are no keys. Does I/O on the catalog.

A key is looked up for each request, so that one that is revoked stops at once.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fastapi import Depends, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.security import HTTPBearer
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Receive, Scope, Send

from producers.events import CANARY_TENANT
from query.api.limits import Rates
from workers.stores.api_keys import ApiKey, Right
from workers.stores.catalog import Catalog

GUARDED = "/v1/"
_JSON = re.compile(r"application/(?:[\w.-]+\+)?json\s*(?:;|$)", re.IGNORECASE)
"""A web page may send any other type here without being asked whether it may."""
HOW_TO_CREATE = "`scope-recall keys create --tenant NAME` makes one"
_documented = HTTPBearer(auto_error=False, description="A key made by `scope-recall keys create`: sr_…")


@dataclass(frozen=True)
class Caller:
    """Whoever sent a request."""

    key: ApiKey | None
    """None: somebody on this machine, where no key was ever made; they own all of it."""

    def may(self, right: Right) -> bool:
        return self.key is None or right in self.key.rights

    def tenant(self, named: str | None) -> str | None:
        """The tenant that a body speaks of: the key's, if there is one. Raises `HTTPException` 403 for any other."""
        if named == CANARY_TENANT:
            raise HTTPException(403, f"tenant {named!r} is the service's own")
        if self.key is None or named == self.key.tenant:
            return named
        if named is not None:
            raise HTTPException(403, "tenant: not the one that this key is for; leave the field out")
        return self.key.tenant


def needs(right: Right) -> Any:
    """A route's parameter: its `Caller`, who has this right. Raises `HTTPException` 403, or 415 when it is no JSON."""

    async def checked(request: Request, _: Any = Depends(_documented)) -> Caller:
        caller: Caller = request.state.caller
        if request.method == "POST" and not _JSON.match(request.headers.get("content-type", "")):
            raise HTTPException(415, "send JSON, with the header `Content-Type: application/json`")
        if not caller.may(right):
            raise HTTPException(403, f"this key lacks the right {right!r}; its rights are given when it is created")
        return caller

    return Depends(checked)


class AccessGate:
    """Lets a request under `/v1/` pass when it is known who sends it, before anything of its body is read."""

    def __init__(self, app: ASGIApp, *, catalog: Callable[[], Catalog], loopback: bool, rates: Rates) -> None:
        """`loopback`: whether only this machine can reach the service, so that keys may do without."""
        self._app = app
        self._catalog = catalog
        self._loopback = loopback
        self._rates = rates

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"].startswith(GUARDED):
            headers = Headers(scope=scope)
            given = headers.getlist("authorization")
            if len(given) > 1:  # a proxy may go by another one than the service
                raise _unauthorized("send one `Authorization` header")
            caller = await run_in_threadpool(self._caller, given[0] if given else None, headers.get("host", ""))
            scope.setdefault("state", {})["caller"] = caller
            if caller.key is not None:
                self._rates.take(caller.key.id)
        await self._app(scope, receive, send)

    def _caller(self, authorization: str | None, host: str) -> Caller:
        keys = self._catalog().api_keys
        scheme, _, text = (authorization or "").partition(" ")
        if scheme.lower() == "bearer":  # RFC 6750
            key = keys.find(text.strip())
            if key is not None:
                return Caller(key)
        elif authorization is None and self._loopback and not keys.ever():
            _refuse_other_names(host)
            return Caller(None)
        raise _unauthorized(f"send a key that is good as `Authorization: Bearer sr_…`; {HOW_TO_CREATE}")


def _unauthorized(message: str) -> HTTPException:
    return HTTPException(401, message, {"WWW-Authenticate": "Bearer"})


def _refuse_other_names(host: str) -> None:
    """A web page can give this machine a name of its own, and would read as its own what the service answers there."""
    name = host.removeprefix("[").partition("]")[0] if host.startswith("[") else host.partition(":")[0]
    if not is_loopback(name):
        raise HTTPException(403, f"without a key the service is asked at 127.0.0.1 or localhost only; {HOW_TO_CREATE}")


def is_loopback(name: str) -> bool:
    """Whether a host's name or address means this machine. No look-up."""
    if name.lower() == "localhost":
        return True
    try:
        # A link-local IPv6 address carries its interface: fe80::1%eth0.
        return ipaddress.ip_address(name.partition("%")[0]).is_loopback
    except ValueError:
        return False
