"""`/healthz` and `/readyz`, for whoever watches the service; without a key. No I/O of its own."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from fastapi import APIRouter
from fastapi.responses import JSONResponse, Response

from query.api.answers import Health, ReadinessAnswer
from query.api.service import Service


def health_routes(service: Service) -> APIRouter:
    """The routes."""
    router = APIRouter(tags=["health"])
    answers: dict[int | str, dict[str, Any]] = {
        200: {"model": ReadinessAnswer, "description": "It was recalled lately."},
        503: {"model": ReadinessAnswer, "description": "It was not; `missing` says what is wrong."},
    }

    @router.get("/healthz", response_model=Health)
    async def healthz() -> dict[str, str]:
        """Whether the process answers; it says nothing about the stores."""
        return {"status": "ok"}

    @router.get("/readyz", response_model=None, responses=answers)
    async def readyz() -> Response:
        """Whether the whole path works: a turn that the service pushed itself was recalled lately.

        When the last success is older than `api_ready_seconds` a new canary is sent, and waited for up to 5 s.
        """
        found = await service.canary.readiness()
        return JSONResponse(asdict(found), 200 if found.ready else 503)

    return router
