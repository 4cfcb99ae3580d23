"""What callers send: one model for each body, and for each query string. Pure."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import AwareDatetime, BaseModel, BeforeValidator, ConfigDict, Field

from producers.errors import UsageError
from producers.events import MAX_TURN_INDEX, Identifier, Role, TurnEvent
from producers.recall_answers import Fact
from producers.settings import Settings
from query.counting import By
from query.history import MAX_SESSIONS as MOST_SESSIONS
from query.history import MAX_TURNS as MOST_TURNS
from query.history import SESSIONS_SHOWN
from query.question import MAX_NEIGHBOURS, MAX_QUESTION_CHARS, MAX_WIDE, Question
from query.recency import Recency
from query.recent import MAX_RECENT, MAX_SESSIONS, Recent
from workers.stores.facts import conditions_of
from workers.stores.history import Part
from workers.stores.scope import Scope
from workers.stores.selection import Selection

MAX_DEADLINE_MS = 600_000
"""A caller that would wait longer than ten minutes has a wrong number there."""
MAX_COUNTED_CHARS = 4000
"""Of a text in a URL, where a character takes up to twelve bytes: the server reads 64 KiB of a request's head."""
MAX_TURNS = 1000
"""Turns in one body: what is validated at once."""
_NUMBER = re.compile(r"\s*[-+]?[\d._]+(?:[eE][-+]?\d+)?\s*")


def _text(value: object) -> object:
    """Not strict, a moment might be a number of seconds; a forget by a mistaken number is not undone."""
    if not isinstance(value, str) or _NUMBER.fullmatch(value):
        raise ValueError("a time as text is due, such as 2026-01-31T09:00:00+08:00")
    return value


# Strict, except that JSON has neither tuples nor times.
Names = Annotated[tuple[Identifier, ...], Field(strict=False)]
Moment = Annotated[AwareDatetime, Field(strict=False), BeforeValidator(_text)]

TURN_EXAMPLE: dict[str, Any] = {
    "tenant": "acme",
    "session_id": "deploy-7",
    "turn_index": 1,
    "role": "assistant",
    "content": "The proxy listens on 8443 since the move to TLS.",
    "tags": ["infra"],
}


class RecentTurns(BaseModel):
    """The `turns` newest turns of a session."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    session_id: Identifier
    turns: int = Field(ge=1, le=MAX_RECENT)


class TurnPlace(BaseModel):
    """Where a turn stands in its conversation."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    session_id: Identifier
    turn_index: int = Field(ge=0, le=MAX_TURN_INDEX)


class RecallRequest(BaseModel):
    """The body of `POST /v1/recall`: the question, whose memory to search, and what to leave out."""

    model_config = ConfigDict(
        frozen=True,
        strict=True,
        extra="forbid",
        json_schema_extra={
            "examples": [
                {"query": "which port does the proxy use?", "tenant": "acme"},
                {
                    "query": "证书为什么过期",
                    "tenant": "acme",
                    "since": "2026-02-01T00:00:00Z",
                    "tags": ["infra"],
                    "where": {"git.branch": ["main", "next"], "ok": True},
                    "k": 3,
                },
                {
                    "query": "and what about the second one?",
                    "query_context": "Ada: which ports does the first proxy use?\nBob: 8443 and 9443.",
                    "tenant": "acme",
                },
            ]
        },
    )

    query: str = Field(min_length=1, max_length=MAX_QUESTION_CHARS)
    tenant: Identifier | None = None
    """Whose memory; may be left out with a key, which has its own."""
    sessions: Names = ()
    agents: Names = ()
    roles: Annotated[tuple[Role, ...], Field(strict=False)] = ()
    tags: Names = ()
    sources: Names = ()
    exclude_sessions: Names = ()
    query_context: str = Field("", max_length=MAX_QUESTION_CHARS)
    """What was said before the question, as lines; the end of it is read."""
    exclude_recent: Annotated[tuple[RecentTurns, ...], Field(strict=False, max_length=MAX_SESSIONS)] = ()
    """Sessions whose newest turns the asking agent still has before it."""
    where: dict[str, Fact | list[Fact]] = Field(default_factory=dict)
    """What the metadata says, by key (`git.branch`: `branch` in `git`); several values of one key are alternatives."""
    code_languages: Names = ()
    """Only code in these languages, as its fences name them."""
    since: Moment | None = None
    until: Moment | None = None
    k: int = Field(5, ge=1, le=MAX_WIDE)
    wide: int | None = Field(None, ge=1, le=MAX_WIDE)
    """Candidate turns before reranking; never fewer than `k`."""
    deadline_ms: int | None = Field(None, ge=1, le=MAX_DEADLINE_MS)
    explain: bool = False
    why: TurnPlace | None = None
    """A turn to account for, whether it is a hit or not."""
    as_of: Moment | None = None
    min_score: float | None = Field(None, ge=0, le=1)
    recency_weight: float | None = Field(None, ge=0, le=1)
    half_life_days: float | None = Field(None, gt=0)
    neighbours: int | None = Field(None, ge=0, le=MAX_NEIGHBOURS)
    fold: bool = True

    def question(self, tenant: str | None, settings: Settings) -> Question:
        """The same question for the recaller, in `tenant`. Raises `UsageError` when its parts do not fit together."""
        scope = Scope(
            tenant=_required(tenant),
            sessions=self.sessions,
            agents=self.agents,
            roles=self.roles,
            tags=self.tags,
            sources=self.sources,
            exclude_sessions=self.exclude_sessions,
            where=conditions_of(self.where),
            code_languages=self.code_languages,
            since=self.since,
            until=self.until,
        )
        weight = settings.recency_weight if self.recency_weight is None else self.recency_weight
        return Question(
            self.query,
            scope,
            k=self.k,
            wide=max(self.wide or settings.wide, self.k),
            deadline_ms=self.deadline_ms or settings.deadline_ms,
            explain=self.explain,
            recency=Recency(weight, self.half_life_days or settings.half_life_days),
            min_score=settings.min_score if self.min_score is None else self.min_score,
            as_of=self.as_of,
            why=None if self.why is None else (self.why.session_id, self.why.turn_index),
            neighbours=settings.neighbours if self.neighbours is None else self.neighbours,
            fold=self.fold,
            query_context=self.query_context,
            query_context_weight=settings.query_context_weight,
            exclude_recent=tuple(Recent(one.session_id, one.turns) for one in self.exclude_recent),
        )


class ForgetRequest(BaseModel):
    """The body of `POST /v1/forget`: whose turns go, and which of them."""

    model_config = ConfigDict(
        frozen=True,
        strict=True,
        extra="forbid",
        json_schema_extra={"examples": [{"tenant": "acme", "session": "deploy-7", "dry_run": True}]},
    )

    tenant: Identifier | None = None
    """Whose turns; may be left out with a key, which has its own."""
    session: Identifier | None = None
    agent: Identifier | None = None
    before: Moment | None = None
    dry_run: bool = False
    """Count what would go, and change nothing."""

    def selection(self, tenant: str | None) -> Selection:
        """What is to be forgotten. Raises `UsageError`."""
        return Selection(_required(tenant), self.session, self.agent, self.before)


class _Asked(BaseModel):
    """What every query string may say: whose turns, and said when."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    tenant: Identifier | None = Field(None, examples=["acme"])
    """Whose turns; may be left out with a key, which has its own."""
    since: Moment | None = Field(None, examples=["2026-01-31T00:00:00Z"])
    """Only what was said at or after this moment; a turn without a time is left out."""
    until: Moment | None = None
    """Only what was said before this moment."""

    def scope(self, tenant: str | None, **filters: Any) -> Scope:
        """What may be seen, in `tenant`. Raises `UsageError`."""
        return Scope(_required(tenant), since=self.since, until=self.until, **filters)


class SessionsQuery(_Asked):
    """The query string of `GET /v1/sessions`."""

    agents: tuple[Identifier, ...] = ()
    sources: tuple[Identifier, ...] = ()
    limit: int = Field(SESSIONS_SHOWN, ge=1, le=MOST_SESSIONS)


class HistoryQuery(_Asked):
    """The query string of `GET /v1/sessions/{session_id}/turns`."""

    roles: tuple[Role, ...] = ()
    from_turn: int = Field(0, ge=0, le=MAX_TURN_INDEX)
    """Only turns from this index on."""
    to_turn: int = Field(MAX_TURN_INDEX, ge=0, le=MAX_TURN_INDEX)
    """Only turns up to this index, included."""
    first: int | None = Field(None, ge=1, le=MOST_TURNS)
    """Only the first of these turns."""
    last: int | None = Field(None, ge=1, le=MOST_TURNS)
    """Only the last of these turns."""
    skip: int = Field(0, ge=0, le=MAX_TURN_INDEX)
    """Turns to pass over, for those that another answer gave."""

    def part(self) -> Part:
        """Which of the session's turns. Raises `UsageError`."""
        return Part(self.from_turn, self.to_turn, self.first, self.last)


class CountQuery(_Asked):
    """The query string of `GET /v1/count`."""

    text: str = Field(min_length=1, max_length=MAX_COUNTED_CHARS, examples=["timeout"])
    """What is said: no pattern, whatever its case and width."""
    sessions: tuple[Identifier, ...] = ()
    agents: tuple[Identifier, ...] = ()
    roles: tuple[Role, ...] = ()
    by: By | None = None
    """Also for each day in UTC, or session."""


def turns_schema() -> dict[str, Any]:
    """JSON schema of the body of `POST /v1/turns`: one turn event, or many. Each is judged alone, so it is no model."""
    turn = TurnEvent.model_json_schema()
    many = {
        "title": "Turns",
        "type": "object",
        "properties": {"turns": {"type": "array", "items": turn, "minItems": 1, "maxItems": MAX_TURNS}},
        "required": ["turns"],
        "additionalProperties": False,
        "examples": [{"turns": [TURN_EXAMPLE]}],
    }
    return {"anyOf": [many, turn | {"examples": [TURN_EXAMPLE]}]}


def _required(tenant: str | None) -> str:
    if tenant is None:
        raise UsageError("tenant: missing")
    return tenant
