"""What the query service answers, as typed values. Pure.

A later version may answer more: fields that are not known here are kept as attributes, and one that is missing has a
default unless nothing can be done without it.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal, TypedDict, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from producers.errors import UnexpectedAnswer
from producers.events import Role

Fact = str | int | float | bool | None
"""A value in a turn's metadata."""


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
    where: Mapping[str, Fact | list[Fact] | tuple[Fact, ...]]
    """What the metadata says, by key (`git.branch`: `branch` in `git`); several values of one key are alternatives."""
    code_languages: tuple[str, ...] | list[str]
    """Only code in these languages, as its fences name them."""
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
    why: tuple[str, int]
    """Session and index of a turn to account for, whether it is a hit or not."""
    min_score: float
    """0 to 1; leaves out what is less sure to answer."""
    recency_weight: float
    half_life_days: float
    neighbours: int
    """Turns before and after each hit to show in the context block."""
    fold: bool
    """Let one hit stand for those that say the same."""


class _Said(TypedDict, total=False):
    tenant: str
    """Whose turns; may be left out with a key, which has one."""
    since: datetime
    until: datetime
    """Both need a time zone; a turn without a time is left out by them."""


class SessionsOptions(_Said, total=False):
    """Options of `sessions`."""

    agents: tuple[str, ...] | list[str]
    sources: tuple[str, ...] | list[str]
    limit: int
    """Sessions to list, 20 if it is not said."""


class HistoryOptions(_Said, total=False):
    """Options of `history`."""

    roles: tuple[Role, ...] | list[Role]
    from_turn: int
    to_turn: int
    """Indexes, both included."""
    first: int
    last: int
    """Only so many of these turns, counted from their beginning or end."""
    skip: int
    """Turns to pass over, for those that another answer gave."""


class CountOptions(_Said, total=False):
    """Options of `count`."""

    sessions: tuple[str, ...] | list[str]
    agents: tuple[str, ...] | list[str]
    roles: tuple[Role, ...] | list[Role]
    by: Literal["day", "session"]


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
    why: tuple[dict[str, Any], ...] = ()
    """`verdict` and `reason`, when that was asked for."""


class SessionSummary(_Answer):
    """A session, or as much of it as the filters keep."""

    session_id: str
    turns: int
    first: datetime | None = None
    """When the first of these turns was said; None when none of them has a time."""
    last: datetime | None = None
    agents: tuple[str, ...] = ()


class Sessions(_Answer):
    """Sessions, those that went on last first."""

    sessions: tuple[SessionSummary, ...]
    total: int
    """How many there are, listed or not."""


class SessionTurns(_Answer):
    """Turns of a session, whole and in order; none when there are none."""

    session_id: str = ""
    turns: tuple[RecalledTurn, ...]
    total: int
    """How many filters and indexes keep, before `first`, `last` and `skip`."""
    left_out: int = 0
    """Turns that were asked for and come after these; ask again with `skip`."""


class Group(_Answer):
    """Turns of one day or session that say a text."""

    day: str | None = None
    """In UTC; None for turns without a time."""
    session: str | None = None
    turns: int
    times: int


class TextCount(_Answer):
    """In how many turns a text is said, and how often."""

    text: str = ""
    turns: int
    times: int
    groups: tuple[Group, ...] = ()
    """By day or session, when that was asked for."""


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
