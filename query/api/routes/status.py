"""`GET /v1/status`: what the whole system is doing, as the command of this name says it. Does I/O; reads only."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from fastapi.responses import JSONResponse, Response

from producers.connection import connect_briefly
from query.api.access import Caller, needs
from query.api.answers import Responses, documented
from query.api.service import Service
from workers.status import gather_status


def status_routes(service: Service) -> APIRouter:
    """The routes."""
    router = APIRouter(tags=["status"])
    answers: Responses = {200: {"model": dict[str, Any], "description": "As `scope-recall status --json`."}}

    @router.get("/v1/status", response_model=None, responses=documented(answers, body=False))
    async def status(_: Caller = needs("admin")) -> Response:
        """Streams, queues, workers, stores and what is degraded: of the whole system, not of one tenant."""
        client = connect_briefly(service.settings)  # one request waits for the other
        return JSONResponse(await service.statuses.run(gather_status, service.settings, client))

    return router
