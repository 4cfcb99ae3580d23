"""What the query service answers when there is no result: `{"error": ...}`, always. Does I/O only by logging.

An error says which field is wrong and why. A mistake of ours is logged by its type and place alone: its message may
quote what was asked.
"""

from __future__ import annotations

import traceback
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from producers.errors import ScopeRecallError, SettingsError, UsageError
from producers.logs import get_logger

SHOWN_CHARS = 60
"""Of a refused value, in its error."""
STATUS = {ScopeRecallError: 503, UsageError: 422, SettingsError: 503}
"""Settings are the service's, not the caller's. The nearest class of an error counts."""

log = get_logger(__name__)


class Problem(BaseModel):
    """Every answer that is not a result."""

    error: str


def problem(code: int, message: str, headers: dict[str, str] | None = None) -> JSONResponse:
    """An answer that is not a result."""
    sendable = message.encode(errors="backslashreplace").decode()  # a name in a body may hold a lone surrogate
    return JSONResponse({"error": sendable}, code, headers)


def answer_errors(app: FastAPI) -> None:
    """Make every error of `app` a `Problem`."""
    for kind, code in STATUS.items():
        app.add_exception_handler(kind, _handler(code))
    app.add_exception_handler(RequestValidationError, _invalid_request)
    app.add_exception_handler(HTTPException, _http_error)
    app.middleware("http")(_contain)


async def _contain(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
    try:
        return await call_next(request)
    except Exception as error:  # noqa: BLE001  # uvicorn would log the traceback with the message
        last = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{Path(last.filename).name}:{last.lineno}"
        log.error("request_failed", path=request.scope["path"], error=type(error).__name__, place=place)
        return problem(500, f"internal error ({type(error).__name__}); the service's log says where")


def _handler(code: int) -> Callable[[Request, Exception], Response]:
    return lambda _request, error: problem(code, str(error))


def _http_error(_request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return problem(error.status_code, str(error.detail), dict(error.headers or {}))


def _invalid_request(_request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    return problem(422, "; ".join(_explain(item) for item in error.errors()))


def _explain(item: dict[str, Any]) -> str:
    """One problem of a body: field, what is wrong, the value shortened."""
    field = ".".join(str(part) for part in item["loc"][1:]) or "body"
    if item["type"] == "json_invalid":
        return f"body: invalid JSON: {item['ctx']['error']} at position {item['loc'][-1]}"
    if item["type"] == "extra_forbidden":
        return f"{field}: unknown field; /openapi.json lists them"
    if item["type"] == "missing":
        return f"{field}: missing"
    if item["type"] == "timezone_aware":
        return f"{field}: {_shorten(item['input'])} has no time zone; add an offset, such as Z or +08:00"
    message = item["msg"]
    return f"{field}: {message[0].lower()}{message[1:]}, got {_shorten(item['input'])}"


def _shorten(value: object) -> str:
    text = repr(value)
    return text if len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]}… ({len(text):,} characters)"
