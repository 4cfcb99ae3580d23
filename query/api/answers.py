"""What the service answers, for its OpenAPI description; later versions may add fields. Pure."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from query.api.problems import Problem
from query.api.requests import TURN_EXAMPLE

Responses = dict[int | str, dict[str, Any]]
"""Of a route, as FastAPI documents them."""

STATUSES = {
    400: "The body could not be read.",
    401: "No key, or none that is good.",
    403: "The key is for another tenant, or lacks the right.",
    408: "The body took too long to come.",
    413: "The body is too large.",
    415: "The body is not sent as JSON.",
    422: "A field is wrong; the error names it.",
    429: "Too much at once; `Retry-After` has seconds.",
    500: "A mistake of the service's; its log says where.",
    503: "A store or the stream is away, or it took too long; `Retry-After` has seconds.",
}
WITH_BODY = (400, 408, 413, 415)
WITH_FIELDS = (422,)


class Accepted(BaseModel):
    """A turn that is stored soon, and will not get lost."""

    status: Literal["accepted"]
    key: str
    """The turn's identity; the same for the same tenant, session, index and role."""


class Rejected(BaseModel):
    """A turn that can never be stored as it is."""

    status: Literal["rejected"]
    field: str
    """The first field that is wrong; empty when it is the turn as a whole."""
    reason: str


class TurnsAnswer(BaseModel):
    """A result for each turn, in order."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "results": [
                        {"status": "accepted", "key": "8d1b9c1f3a4e5d60718293a4b5c6d7e8"},
                        {"status": "rejected", "field": "role", "reason": "role: missing"},
                    ]
                }
            ]
        }
    )

    results: list[Accepted | Rejected]


class SessionAnswer(BaseModel):
    """A session, or as much of it as the filters keep."""

    session_id: str
    turns: int
    first: str | None
    """When the first of these turns was said; null when none of them has a time."""
    last: str | None
    agents: list[str]


class SessionsAnswer(BaseModel):
    """Sessions, those that went on last first."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "sessions": [
                        {
                            "session_id": "deploy-7",
                            "turns": 12,
                            "first": "2026-01-31T09:00:00+00:00",
                            "last": "2026-01-31T09:20:00+00:00",
                            "agents": ["hermes"],
                        }
                    ],
                    "total": 1,
                }
            ]
        }
    )

    sessions: list[SessionAnswer]
    total: int
    """How many there are, listed or not."""


class StoredTurnAnswer(BaseModel):
    """A turn as it was said, whole."""

    tenant: str
    session_id: str
    turn_index: int
    role: str
    speaker: str | None
    agent_id: str | None
    source: str
    tags: list[str]
    metadata: dict[str, Any]
    created_at: str | None
    content: str


class HistoryAnswer(BaseModel):
    """Turns of a session, in order; none when it has none, or is not there."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "session_id": "deploy-7",
                    "turns": [
                        TURN_EXAMPLE
                        | {"speaker": None, "agent_id": None, "source": "push", "metadata": {}, "created_at": None}
                    ],
                    "total": 1,
                    "left_out": 0,
                }
            ]
        }
    )

    session_id: str
    turns: list[StoredTurnAnswer]
    total: int
    """How many the filters and indexes keep, before first, last and skip."""
    left_out: int
    """Turns that were asked for and come after these: ask again, and skip those you have."""


class GroupAnswer(BaseModel):
    """Turns of a day or a session that say it."""

    day: str | None = None
    """In UTC; null for turns without a time. Only by day."""
    session: str | None = None
    """Only by session."""
    turns: int
    times: int


class TextCountAnswer(BaseModel):
    """In how many turns a text is said, and how often."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"text": "timeout", "turns": 3, "times": 5},
                {
                    "text": "证书",
                    "turns": 1,
                    "times": 2,
                    "by": "day",
                    "left_out": 0,
                    "groups": [{"day": "2026-01-31", "turns": 1, "times": 2}],
                },
            ]
        }
    )

    text: str
    turns: int
    times: int
    by: Literal["day", "session"] | None = None
    left_out: int | None = None
    """Groups that are not listed."""
    groups: list[GroupAnswer] | None = None


class ForgetAnswer(BaseModel):
    """What was forgotten, and whether a search of every file and key has found nothing of it."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"turns": 12, "chunks": 14, "on_their_way": 0, "verified": True, "found": [], "problems": []}]
        }
    )

    turns: int
    chunks: int
    on_their_way: int
    verified: bool
    found: list[str]
    problems: list[str]


class CountAnswer(BaseModel):
    """With `dry_run`: what would be forgotten."""

    turns: int
    sessions: int
    dry_run: Literal[True]


class Health(BaseModel):
    """The process answers."""

    status: Literal["ok"]


class ReadinessAnswer(BaseModel):
    """Whether a turn that the service pushed itself was recalled lately."""

    ready: bool
    proved_seconds_ago: float | None
    missing: str | None
    degraded: list[str]


def documented(ok: Responses, *, body: bool, query: bool = False) -> Responses:
    """The `responses` of a route under /v1/, which reads a body or a query string: what it gives, and every problem."""
    never = () if body else WITH_BODY if query else WITH_BODY + WITH_FIELDS
    codes = [code for code in STATUSES if code not in never]
    return ok | {code: {"model": Problem, "description": STATUSES[code]} for code in codes}
