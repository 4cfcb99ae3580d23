"""`POST /v1/recall`: the turns that answer a question. Does I/O on both stores, through one recaller."""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.responses import JSONResponse, Response

from query.api.access import Caller, needs
from query.api.answers import RecallAnswer, documented
from query.api.requests import RecallRequest
from query.api.service import Service


def recall_routes(service: Service) -> APIRouter:
    """The routes."""
    router = APIRouter(tags=["recall"])

    @router.post(
        "/v1/recall",
        response_model=None,
        responses=documented({200: {"model": RecallAnswer, "description": "What was found."}}, body=True),
    )
    async def recall(body: RecallRequest, caller: Caller = needs("recall")) -> Response:
        """The turns that answer the question, within one tenant, with a block of context for a prompt."""
        question = body.question(caller.tenant(body.tenant), service.settings)
        answer = await service.recalls.run(service.recall, question)
        return JSONResponse(answer.as_json())

    return router
