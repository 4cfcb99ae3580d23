"""`GET /v1/sessions`, `/v1/sessions/{session_id}/turns` and `/v1/count`: questions that need no search.

Does I/O on the catalog; reads only.
"""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query
from fastapi.responses import JSONResponse, Response

from producers.events import MAX_ID_CHARS
from query.api.access import Caller, needs
from query.api.answers import HistoryAnswer, Responses, SessionsAnswer, TextCountAnswer, documented
from query.api.problems import Problem
from query.api.requests import CountQuery, HistoryQuery, SessionsQuery
from query.api.service import Service
from query.counting import By
from query.counting import count as count_text
from query.history import as_many, sessions_answer, turns_answer
from workers.stores.history import Part
from workers.stores.scope import Scope

SessionId = Annotated[
    str, Path(min_length=1, max_length=MAX_ID_CHARS, examples=["deploy-7"], description="Percent-encoded.")
]

NO_SUCH_PATH: Responses = {404: {"model": Problem, "description": "A line break in the path, which no id has."}}


def history_routes(service: Service) -> APIRouter:
    """The routes."""
    router = APIRouter(tags=["history"])

    def list_sessions(scope: Scope, limit: int) -> dict[str, Any]:
        return sessions_answer(*service.catalog().history.sessions(scope, limit))

    def list_turns(session_id: str, scope: Scope, part: Part, skip: int) -> dict[str, Any]:
        history = service.catalog().history
        total = history.count(scope, part)
        found = as_many(history.turns(scope, part, skip=skip))
        left_out = max(0, part.bounds(total)[1] - skip - len(found))
        return turns_answer(session_id, found, total) | {"left_out": left_out}

    def count_turns(text: str, by: By | None, scope: Scope) -> dict[str, Any]:
        return count_text(text, by, service.catalog().history.said(scope)).as_json()

    @router.get("/v1/sessions", response_model=None, responses=_answers(SessionsAnswer, "The sessions."))
    async def sessions(asked: Annotated[SessionsQuery, Query()], caller: Caller = needs("recall")) -> Response:
        """A tenant's sessions with their turns, first and last time and agents, those that went on last first."""
        scope = asked.scope(caller.tenant(asked.tenant), agents=asked.agents, sources=asked.sources)
        return JSONResponse(await service.histories.run(list_sessions, scope, asked.limit))

    @router.get(
        "/v1/sessions/{session_id:path}/turns",  # an id may hold a slash
        response_model=None,
        responses=_answers(HistoryAnswer, "The turns.") | NO_SUCH_PATH,
    )
    async def history(
        session_id: SessionId, asked: Annotated[HistoryQuery, Query()], caller: Caller = needs("recall")
    ) -> Response:
        """The turns of a session, whole and in order; at most 1,000 turns and 8 Mi characters in one answer."""
        scope = asked.scope(caller.tenant(asked.tenant), sessions=(session_id,), roles=asked.roles)
        return JSONResponse(await service.histories.run(list_turns, session_id, scope, asked.part(), asked.skip))

    @router.get("/v1/count", response_model=None, responses=_answers(TextCountAnswer, "How often it is said."))
    async def count(asked: Annotated[CountQuery, Query()], caller: Caller = needs("recall")) -> Response:
        """In how many of a tenant's turns a text is said, and how often; every turn in scope is looked through."""
        filters = {"sessions": asked.sessions, "agents": asked.agents, "roles": asked.roles}
        scope = asked.scope(caller.tenant(asked.tenant), **filters)
        return JSONResponse(await service.histories.run(count_turns, asked.text, asked.by, scope))

    return router


def _answers(model: type[Any], description: str) -> Responses:
    return documented({200: {"model": model, "description": description}}, body=False, query=True)
