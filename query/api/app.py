"""The query service as a FastAPI app: its parts put together. No I/O before it is started.

request → id and log → who calls → size and time → route → lines → stores, stream
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version

from fastapi import FastAPI
from fastapi.concurrency import run_in_threadpool

from producers.settings import Settings
from query.api.access import AccessGate
from query.api.limits import BodyAndTime, Rates
from query.api.openapi import describe_problems
from query.api.problems import answer_errors
from query.api.request_log import RequestLog
from query.api.routes.forget import forget_routes
from query.api.routes.health import health_routes
from query.api.routes.history import history_routes
from query.api.routes.recall import recall_routes
from query.api.routes.status import status_routes
from query.api.routes.turns import turns_routes
from query.api.service import Service


def create_app(settings: Settings, *, loopback: bool = True) -> FastAPI:
    """The app. `loopback`: only this machine can reach it, so that it may be asked without a key while there are none.

    Started as ASGI's lifespan says, and closed the same way.
    """
    service = Service(settings)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        service.start()
        yield
        await run_in_threadpool(service.close)

    app = FastAPI(
        title="scope-recall",
        version=version("scope-recall-hermes"),
        docs_url=None,  # the page would load its scripts from other people's servers
        redoc_url=None,
        redirect_slashes=False,
        lifespan=lifespan,
        telemetry={"logs": False},  # it would record exceptions' messages, which may quote what was asked
    )
    answer_errors(app)
    for routes in (turns_routes, recall_routes, history_routes, forget_routes, status_routes, health_routes):
        app.include_router(routes(service))
    describe_problems(app)
    # The last one added is the outermost.
    app.add_middleware(BodyAndTime, most_bytes=settings.api_body_bytes, seconds=settings.api_timeout)
    app.add_middleware(AccessGate, catalog=service.catalog, loopback=loopback, rates=Rates(settings.api_rate))
    app.add_middleware(RequestLog)
    return app
