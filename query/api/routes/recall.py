"""`POST /v1/recall`: the turns that answer a question. Does I/O on both stores, through one recaller."""

from __future__ import annotations

import time
from dataclasses import replace

from fastapi import APIRouter
from fastapi.responses import JSONResponse, Response

from query.answer import Answer
from query.api.access import Caller, needs
from query.api.answers import documented
from query.api.limits import too_many
from query.api.recall_answers import RecallAnswer
from query.api.requests import RecallRequest
from query.api.service import Service
from query.question import Question


def recall_routes(service: Service) -> APIRouter:
    """The routes."""
    router = APIRouter(tags=["recall"])

    def answer_in_time(question: Question, asked: float) -> Answer:
        """What it has waited in line is taken off its time: the deadline is the caller's."""
        left = question.deadline_ms - round((time.monotonic() - asked) * 1000)
        if left <= 0:
            message = f"its turn did not come within deadline_ms = {question.deadline_ms}; others are answered first"
            raise too_many(message, service.recalls.wait())
        return service.recall(replace(question, deadline_ms=left))

    @router.post(
        "/v1/recall",
        response_model=None,
        responses=documented({200: {"model": RecallAnswer, "description": "What was found."}}, body=True),
    )
    async def recall(body: RecallRequest, caller: Caller = needs("recall")) -> Response:
        """The turns that answer the question, within one tenant, with a block of context for a prompt."""
        question = body.question(caller.tenant(body.tenant), service.settings)
        answer = await service.recalls.run(answer_in_time, question, time.monotonic())
        return JSONResponse(answer.as_json())

    return router
