"""`POST /v1/turns`: one turn or many onto the stream. Does I/O through the appender."""

from __future__ import annotations

import json
from typing import Any

from fastapi import APIRouter, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse, Response

from producers.errors import InvalidEvent, UsageError
from producers.events import TurnEvent, parse_pushed
from producers.settings import Settings
from query.api.access import Caller, needs
from query.api.answers import TurnsAnswer, documented
from query.api.requests import MAX_TURNS, turns_schema
from query.api.service import Service

LARGE_BYTES = 64 << 10
"""Bodies from this size on are judged on a thread, so that others need not wait: it takes about 10 ms a MiB."""

Judged = TurnEvent | InvalidEvent


def turns_routes(service: Service) -> APIRouter:
    """The routes."""
    router = APIRouter(tags=["turns"])
    described: dict[str, Any] = {"required": True, "content": {"application/json": {"schema": turns_schema()}}}

    @router.post(
        "/v1/turns",
        status_code=202,
        response_model=None,
        responses=documented({202: {"model": TurnsAnswer, "description": "A result for each turn."}}, body=True),
        openapi_extra={"requestBody": described},
    )
    async def push_turns(request: Request, caller: Caller = needs("push")) -> Response:
        """Push one turn event, or many as `{"turns": […]}`. Each gets a result of its own, in order.

        An accepted turn is on the stream, or on the service's disk while Redis is away, and can be recalled soon.
        Sending it again changes nothing; sending it with other content replaces it. After a 503 send all of it again.
        """
        body = await request.body()
        arguments = (body, caller, service.settings)
        large = len(body) >= LARGE_BYTES
        judged = await run_in_threadpool(judge_body, *arguments) if large else judge_body(*arguments)
        events = [one for one in judged if isinstance(one, TurnEvent)]
        if events:
            await service.appender.append(events)
        return JSONResponse({"results": [_result(one) for one in judged]}, 202)

    return router


def judge_body(body: bytes, caller: Caller, settings: Settings) -> list[Judged]:
    """Each turn of a body as an event of the caller's tenant, or what is wrong with it.

    Raises `UsageError` when the body as a whole is wrong, `HTTPException` when it names another tenant than the key's.
    """
    return [_judge(item, caller, settings) for item in _items(body)]


def _items(body: bytes) -> list[Any]:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError) as error:
        reason = error.msg if isinstance(error, json.JSONDecodeError) else type(error).__name__
        raise UsageError(f"body: invalid JSON: {reason}") from None
    if not isinstance(found, dict):
        raise UsageError('body: an object is due, a turn event or {"turns": [...]}')
    if "turns" not in found:
        return [found]
    turns = found["turns"]
    if len(found) > 1 or not isinstance(turns, list) or not turns:
        raise UsageError('turns: a list of turn events is due, with nothing beside it: {"turns": [...]}')
    if len(turns) > MAX_TURNS:
        raise UsageError(
            f"turns: {len(turns):,} of them, over the limit of {MAX_TURNS:,} in one body; send more bodies"
        )
    return turns


def _judge(item: Any, caller: Caller, settings: Settings) -> Judged:
    if isinstance(item, dict) and isinstance(item.get("tenant"), str | None):
        tenant = caller.tenant(item.get("tenant"))
        if tenant is not None:
            item = item | {"tenant": tenant}
    try:
        return parse_pushed(json.dumps(item).encode(), settings)
    except InvalidEvent as error:
        return error


def _result(judged: Judged) -> dict[str, str]:
    if isinstance(judged, TurnEvent):
        return {"status": "accepted", "key": judged.key}
    return {"status": "rejected", "field": judged.field, "reason": str(judged)}
