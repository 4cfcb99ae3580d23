"""Around every request: an id for it, one log line about it, and an answer whatever happens. Does I/O by logging.

What was asked and what was found stay out of the log.
"""

from __future__ import annotations

import re
import secrets
import time
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from structlog.contextvars import bound_contextvars

from producers.logs import get_logger
from query.api.problems import problem_of

HEADER = "X-Request-Id"
_USABLE = re.compile(r"[A-Za-z0-9._:-]{1,128}")
"""An id of the caller's that may stand in a log and in a header; another is replaced."""

log = get_logger(__name__)


class RequestLog:
    """The outermost part of the service.

    A request that failed for the service's own reason is logged as a warning, any other only at level `debug`: at some
    hundred requests a second their lines would fill a disk within days.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = Headers(scope=scope).get(HEADER, "")
        request_id = given if _USABLE.fullmatch(given) else secrets.token_hex(8)
        started = time.perf_counter()
        status = 0

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)[HEADER] = request_id
            await send(message)

        with bound_contextvars(request_id=request_id):
            try:
                await self._app(scope, receive, send_with_id)
            except Exception as error:
                if status:
                    raise
                await problem_of(error)(scope, receive, send_with_id)
            milliseconds = round((time.perf_counter() - started) * 1000, 1)
            self._say(scope, status, milliseconds)

    @staticmethod
    def _say(scope: Scope, status: int, milliseconds: float) -> None:
        caller = scope.get("state", {}).get("caller")
        # A path may hold a session's id, which is what was asked: the log has its form instead.
        path = getattr(scope.get("route"), "path_format", scope["path"])
        said: dict[str, Any] = {"method": scope["method"], "path": path, "status": status, "ms": milliseconds}
        if caller is not None and caller.key is not None:
            said["key"] = caller.key.id
        (log.warning if status >= 500 else log.debug)("request", **said)
