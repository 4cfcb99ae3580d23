"""What the query service answers, as typed values. Pure.

A later version may answer more: fields that are not known here are kept as attributes, and one that is missing has a
default unless nothing can be done without it.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, TypedDict, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from producers.errors import UnexpectedAnswer
from producers.events import Role


class RecallOptions(TypedDict, total=False):
    """Options of a recall; what is not given is as the service is set."""

    tenant: str
    """Whose memory to search; may be left out with a key, which has one."""
    sessions: tuple[str, ...] | list[str]
    agents: tuple[str, ...] | list[str]
    roles: tuple[Role, ...] | list[Role]
    tags: tuple[str, ...] | list[str]
    sources: tuple[str, ...] | list[str]
    exclude_sessions: tuple[str, ...] | list[str]
    query_context: str
    """What was said before the question, as lines; the end of it is read."""
    exclude_recent: Mapping[str, int]
    """By session, how many of its newest turns to leave out, since they are in the prompt anyway."""
    since: datetime
    until: datetime
    as_of: datetime
    """Answer as at this moment. Each of the three needs a time zone."""
    k: int
    """Turns to return."""
    wide: int
    """Candidate turns before reranking."""
    deadline_ms: int
    """Time that the service gives itself; `timeout` is the caller's."""
    explain: bool
    min_score: float
    """0 to 1; leaves out what is less sure to answer."""
    recency_weight: float
    half_life_days: float
    neighbours: int
    """Turns before and after each hit to show in the context block."""
    fold: bool
    """Let one hit stand for those that say the same."""


class _Answer(BaseModel):
    model_config = ConfigDict(frozen=True, extra="allow")


class RecalledTurn(_Answer):
    """One turn, best first in an answer."""

    session_id: str
    turn_index: int
    role: str
    content: str
    """The part of the turn that was found."""
    tenant: str | None = None
    speaker: str | None = None
    agent_id: str | None = None
    source: str | None = None
    tags: tuple[str, ...] = ()
    metadata: dict[str, Any] = Field(default_factory=dict)
    created_at: datetime | None = None
    score: float | None = None
    """Comparable within one answer only."""
    confidence: float | None = None
    """0 to 1, comparable between answers; None: no model says."""
    vector_id: str | None = None


class RecallAnswer(_Answer):
    """The turns that answer a question, and a block of context for the prompt."""

    query: str = ""
    hits: tuple[RecalledTurn, ...]
    context: str
    embedder: str | None = None
    reranker: str | None = None
    degraded: tuple[str, ...] = ()
    """What made the answer poorer than it could be."""
    timings_ms: dict[str, float] = Field(default_factory=dict)


class Forgotten(_Answer):
    """What a forget erased, or with `dry_run` would erase."""

    turns: int
    chunks: int | None = None
    verified: bool | None = None
    """Every byte was searched and nothing is left; None with `dry_run`."""


class ServiceStatus(_Answer):
    """As `scope-recall status --json`."""

    degraded: tuple[str, ...] = ()
    advice: tuple[str, ...] = ()
    streams: dict[str, Any] = Field(default_factory=dict)
    catalog: dict[str, Any] = Field(default_factory=dict)
    vectors: dict[str, Any] = Field(default_factory=dict)


Kind = TypeVar("Kind", bound=_Answer)


def read_as(kind: type[Kind], answer: Any, name: str) -> Kind:
    """`answer` as a typed value. Raises `UnexpectedAnswer` naming the field; never its value, which may be content."""
    try:
        return kind.model_validate(answer)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        field = ".".join(map(str, first["loc"])) or "the answer"
        raise UnexpectedAnswer(f"{name}: {field}: {first['msg']}. Is it the query service, of this version?") from None
