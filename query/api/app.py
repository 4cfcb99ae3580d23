"""The query service as a FastAPI app: recall over HTTP. Does I/O on both stores, through one recaller for all requests.

What was asked and what was found stay out of the log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from threading import Lock
from typing import Annotated, Any

from fastapi import FastAPI, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse, Response
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from producers.events import Identifier, Role
from producers.settings import Settings
from query.api.access import KEY_VARIABLE, key_matches
from query.api.problems import Problem, answer_errors, problem
from query.question import MAX_QUESTION_CHARS, Question
from query.recall import Answer, Recaller
from query.recency import Recency
from workers.stores.scope import Scope

RECALL_THREADS = 4
"""Recalls at once: the searches overlap, the models take turns; more callers would only make each other slow."""
MAX_WIDE = 1000
"""As in the `wide` setting."""
MAX_DEADLINE_MS = 600_000
"""A caller that would wait longer than ten minutes has a wrong number there."""

# Strict, except that JSON has neither tuples nor times.
Names = Annotated[tuple[Identifier, ...], Field(strict=False)]
Moment = Annotated[AwareDatetime, Field(strict=False)]


class RecallRequest(BaseModel):
    """The body of `POST /v1/recall`: the question, whose memory to search, and what to leave out."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    query: str = Field(min_length=1, max_length=MAX_QUESTION_CHARS)
    tenant: Identifier
    sessions: Names = ()
    agents: Names = ()
    roles: Annotated[tuple[Role, ...], Field(strict=False)] = ()
    tags: Names = ()
    sources: Names = ()
    exclude_sessions: Names = ()
    since: Moment | None = None
    until: Moment | None = None
    k: int = Field(5, ge=1, le=MAX_WIDE)
    wide: int | None = Field(None, ge=1, le=MAX_WIDE)
    deadline_ms: int | None = Field(None, ge=1, le=MAX_DEADLINE_MS)
    explain: bool = False
    as_of: Moment | None = None
    min_score: float | None = Field(None, ge=0, le=1)
    recency_weight: float | None = Field(None, ge=0, le=1)
    half_life_days: float | None = Field(None, gt=0)

    def question(self, settings: Settings) -> Question:
        """The same question for the recaller. Raises `UsageError` when its parts do not fit together."""
        scope = Scope(
            tenant=self.tenant,
            sessions=self.sessions,
            agents=self.agents,
            roles=self.roles,
            tags=self.tags,
            sources=self.sources,
            exclude_sessions=self.exclude_sessions,
            since=self.since,
            until=self.until,
        )
        wide = self.wide or max(settings.wide, self.k)
        weight = settings.recency_weight if self.recency_weight is None else self.recency_weight
        return Question(
            self.query,
            scope,
            self.k,
            wide,
            self.deadline_ms or settings.deadline_ms,
            self.explain,
            Recency(weight, self.half_life_days or settings.half_life_days),
            settings.min_score if self.min_score is None else self.min_score,
            self.as_of,
        )


class SharedRecaller:
    """One recaller for all requests, opened by the first that finds something stored. Safe for several threads."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lock = Lock()
        self._recaller: Recaller | None = None

    def recall(self, question: Question) -> Answer:
        with self._lock:
            if self._recaller is None:
                self._recaller = Recaller.open(self._settings)
        return self._recaller.recall(question)


def create_app(settings: Settings) -> FastAPI:
    """The app; it opens nothing before it is asked, so that it can start before anything is stored."""
    app = FastAPI(
        title="scope-recall",
        docs_url=None,  # the page would load its scripts from other people's servers
        redoc_url=None,
        telemetry={"logs": False},  # it would record exceptions' messages, which may quote what was asked
    )
    answer_errors(app)
    recaller = SharedRecaller(settings)
    slots = asyncio.Semaphore(RECALL_THREADS)

    @app.middleware("http")
    async def ask_for_key(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
        # Before the body is read: who has no key cannot make the service parse anything.
        key = settings.api_key if request.scope["path"].startswith("/v1/") else None
        if key is not None and not key_matches(request.headers.get("authorization"), key):
            message = f"send the service's key as `Authorization: Bearer KEY`; it is what {KEY_VARIABLE} was set to"
            return problem(401, message, {"WWW-Authenticate": "Bearer"})
        return await call_next(request)

    @app.get("/healthz")
    async def healthz() -> dict[str, str]:
        """Whether the process answers; it says nothing about the stores."""
        return {"status": "ok"}

    described: dict[int | str, dict[str, Any]] = {code: {"model": Problem} for code in (400, 401, 422, 500, 503)}

    @app.post("/v1/recall", response_model=None, responses=described)
    async def recall(body: RecallRequest) -> Response:
        """The turns that answer the question, within one tenant, with a block of context for a prompt."""
        question = body.question(settings)
        async with slots:
            answer = await run_in_threadpool(recaller.recall, question)
        return JSONResponse(answer.as_json())

    return app
