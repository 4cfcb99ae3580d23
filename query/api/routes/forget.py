"""`POST /v1/forget`: erase turns for good, and prove it; what the command of this name does. Does I/O on everything."""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.responses import JSONResponse, Response

from producers.logs import get_logger
from query.api.access import Caller, needs
from query.api.answers import CountAnswer, ForgetAnswer, Responses, documented
from query.api.requests import ForgetRequest
from query.api.service import Service
from workers.maintenance.forget import count, forget

log = get_logger(__name__)


def forget_routes(service: Service) -> APIRouter:
    """The routes."""
    router = APIRouter(tags=["forget"])
    answers: Responses = {200: {"model": ForgetAnswer | CountAnswer, "description": "What is forgotten, or would be."}}

    @router.post("/v1/forget", response_model=None, responses=documented(answers, body=True))
    async def forget_turns(body: ForgetRequest, caller: Caller = needs("forget")) -> Response:
        """Erase a tenant's turns, narrowed by session, agent or date, from everything that was written.

        Recall returns none of it from the first moment; the answer comes when it is erased and searched for, which
        takes seconds, or longer for large stores. After a 503 it goes on, or is finished by the maintenance worker.
        """
        selection = body.selection(caller.tenant(body.tenant))
        if body.dry_run:
            turns, sessions = await service.forgets.run(count, service.settings, selection)
            return JSONResponse({"turns": turns, "sessions": sessions, "dry_run": True})
        report = await service.forgets.run(forget, service.settings, selection)
        log.info("forgotten", turns=report.turns, chunks=report.chunks, verified=report.verified)
        return JSONResponse(report.as_json())

    return router
