"""What the query service answers when there is no result: a `Problem`, always. Does I/O only by logging.

An error says which field is wrong and why. A mistake of ours is logged by its type and place alone: its message may
quote what was asked.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from producers.errors import ScopeRecallError, SettingsError, UsageError
from producers.logs import get_logger, where

MEDIA_TYPE = "application/problem+json"
"""RFC 9457."""
RETRY_SECONDS = 5
"""What a caller is asked to wait for a store, a stream or a time limit; a Redis that restarts is back by then."""
SHOWN_CHARS = 60
"""Of a refused value, in its error."""

log = get_logger(__name__)


class Problem(BaseModel):
    """Every answer that is not a result."""

    title: str
    """The status in words."""
    status: int
    error: str
    """What is wrong, where, and what to do."""


def problem(code: int, message: str, headers: dict[str, str] | None = None) -> JSONResponse:
    """An answer that is not a result."""
    sendable = message.encode(errors="backslashreplace").decode()  # a name in a body may hold a lone surrogate
    body = {"title": HTTPStatus(code).phrase, "status": code, "error": sendable}
    return JSONResponse(body, code, headers, MEDIA_TYPE)


def problem_of(error: Exception) -> JSONResponse:
    """The answer to a request that ended in `error`."""
    match error:
        case RequestValidationError():
            return problem(422, "; ".join(_explain(item) for item in error.errors()))
        case HTTPException():
            return problem(error.status_code, str(error.detail), dict(error.headers or {}))
        case UsageError() if not isinstance(error, SettingsError):  # settings are the service's, not the caller's
            return problem(422, str(error))
        case ScopeRecallError():
            return problem(503, str(error), {"Retry-After": str(RETRY_SECONDS)})
    log.error("request_failed", error=type(error).__name__, where=where(error))
    return problem(500, f"internal error ({type(error).__name__}); the service's log says where")


def answer_errors(app: FastAPI) -> None:
    """Make every error that a route of `app` raises on purpose a `Problem`; `RequestLog` does so with the others."""
    for kind in (ScopeRecallError, RequestValidationError, HTTPException):
        app.add_exception_handler(kind, _answer)


async def _answer(_request: Request, error: Exception) -> Response:
    return problem_of(error)


def _explain(item: dict[str, Any]) -> str:
    """One problem of a body: field, what is wrong, the value shortened."""
    field = ".".join(str(part) for part in item["loc"][1:]) or "body"
    if item["type"] == "json_invalid":
        return f"body: invalid JSON: {item['ctx']['error']} at position {item['loc'][-1]}"
    if item["type"] == "extra_forbidden":
        return f"{field}: unknown field; /openapi.json lists them"
    if item["type"] == "missing":
        return f"{field}: missing"
    if item["type"] == "string_too_long":  # a size says it all, and the text may be what somebody said
        return f"{field}: {len(item['input']):,} characters, over the limit of {item['ctx']['max_length']:,}"
    if item["type"] == "timezone_aware":
        return f"{field}: {_shorten(item['input'])} has no time zone; add an offset, such as Z or +08:00"
    message = item["msg"].removeprefix("Value error, ")
    return f"{field}: {message[0].lower()}{message[1:]}, got {_shorten(item['input'])}"


def _shorten(value: object) -> str:
    text = repr(value)
    return text if len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]}… ({len(text):,} characters)"
