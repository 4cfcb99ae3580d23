"""Questions that need no search: which sessions there are, what was said in one, and the text of every turn.

Reads the catalog alone. A forget, a retention rule or a revision takes a turn out of it in the transaction that hides
it, so no answer holds what was forgotten or replaced.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine

from producers.errors import UsageError
from producers.events import MAX_TURN_INDEX, TurnEvent, from_utc_microseconds
from producers.storable import storable
from workers.stores.engine import reading, snapshot
from workers.stores.retention import said_us
from workers.stores.scope import Scope
from workers.stores.stored_turns import event_of
from workers.stores.tables import turns
from workers.stores.turn_writer import slices

SPEAKS = ("system", "user", "assistant", "tool")
"""Turns that share an index stand in the order in which roles speak."""
PAGE = 64
"""Turns read at once: a turn may have a MiB."""


@dataclass(frozen=True)
class StoredSession:
    """A session, or as much of it as was asked for."""

    session_id: str
    turns: int
    first: datetime | None
    """When the first of these turns was said; None when none of them has a time."""
    last: datetime | None
    agents: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        return {
            "session_id": self.session_id,
            "turns": self.turns,
            "first": self.first.isoformat() if self.first else None,
            "last": self.last.isoformat() if self.last else None,
            "agents": list(self.agents),
        }


@dataclass(frozen=True)
class Part:
    """Which of the turns of a scope: those of these indexes, both included, and of them the first or the last ones."""

    from_turn: int = 0
    to_turn: int = MAX_TURN_INDEX
    first: int | None = None
    last: int | None = None

    def __post_init__(self) -> None:
        if self.first is not None and self.last is not None:
            raise UsageError("first and last: give one of them; for turns in between name their indexes")
        if not 0 <= self.from_turn <= self.to_turn <= MAX_TURN_INDEX:
            raise UsageError(
                f"turns {self.from_turn} to {self.to_turn}: a lower and a higher index are due, up to {MAX_TURN_INDEX}"
            )

    def bounds(self, total: int) -> tuple[int, int]:
        """(turns to leave out before it, turns in it), of `total` with these indexes."""
        if self.last is not None:
            return max(0, total - self.last), min(total, self.last)
        return 0, total if self.first is None else min(total, self.first)


class Said(NamedTuple):
    """What counting looks at of a turn."""

    session_id: str
    created_at_us: int | None
    content: str


class History:
    """The turns of one catalog by who said them, where and when.

    Of a scope it reads tenant, sessions, agents, roles, sources, since and until. Every call raises `UsageError` for an
    id that no turn can have.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def sessions(self, scope: Scope, limit: int) -> tuple[list[StoredSession], int]:
        """At most `limit` sessions with turns in scope, those that went on last first; and how many there are.

        A turn without a time counts as said when it was accepted; it has no part in the times that are given.
        """
        session, said = turns.c.session_id, turns.c.created_at_us
        total = sa.func.count().over()
        query = sa.select(session, sa.func.count(), sa.func.min(said), sa.func.max(said), total)
        query = query.where(*_clauses(scope)).group_by(session).order_by(sa.func.max(said_us()).desc(), session)
        with snapshot(self._engine) as connection:
            rows = connection.execute(query.limit(limit)).all()
            agents = _agents(connection, scope, [row[0] for row in rows])
        found = [
            StoredSession(name, count, from_utc_microseconds(first), from_utc_microseconds(last), tuple(agents[name]))
            for name, count, first, last, _ in rows
        ]
        return found, rows[0][-1] if rows else 0

    def count(self, scope: Scope, part: Part) -> int:
        """How many turns in scope have an index of `part`."""
        query = sa.select(sa.func.count()).select_from(turns).where(*_clauses(scope), *_indexes(part))
        with reading(self._engine) as connection:
            return int(connection.execute(query).scalar_one())

    def turns(self, scope: Scope, part: Part = Part(), *, skip: int = 0) -> Iterator[TurnEvent]:
        """The turns of `part`, session by session in the order in which they were said, after the first `skip`."""
        before, size = part.bounds(self.count(scope, part))
        speaks = sa.case({role: place for place, role in enumerate(SPEAKS)}, value=turns.c.role)
        query = sa.select(turns).where(*_clauses(scope), *_indexes(part))
        query = query.order_by(turns.c.session_id, turns.c.turn_index, speaks)
        query = query.offset(before + skip).limit(max(0, size - skip)).execution_options(yield_per=PAGE)
        with reading(self._engine) as connection:
            for row in connection.execute(query):
                yield event_of(row)

    def said(self, scope: Scope) -> Iterator[Said]:
        """Every turn in scope, in no order, without holding more than a few."""
        query = sa.select(turns.c.session_id, turns.c.created_at_us, turns.c.content).where(*_clauses(scope))
        with reading(self._engine) as connection:
            for row in connection.execute(query.execution_options(yield_per=PAGE)):
                yield Said(*row)


def _agents(connection: Connection, scope: Scope, sessions: Sequence[str]) -> dict[str, list[str]]:
    """The agents of each session's turns in scope."""
    found: dict[str, list[str]] = {session: [] for session in sessions}
    columns = (turns.c.session_id, turns.c.agent_id)
    query = sa.select(*columns).where(*_clauses(scope), turns.c.agent_id.is_not(None)).distinct()
    for some in slices(sessions):
        for session, agent in connection.execute(query.where(turns.c.session_id.in_(some))):
            found[session].append(agent)
    return {session: sorted(agents) for session, agents in found.items()}


def _indexes(part: Part) -> list[sa.ColumnElement[bool]]:
    return [turns.c.turn_index >= part.from_turn, turns.c.turn_index <= part.to_turn]


def _clauses(scope: Scope) -> list[sa.ColumnElement[bool]]:
    """The scope over the catalog's columns. Raises `ValueError` for a filter that it has no clause for."""
    names = (scope.tenant, scope.sessions, scope.agents, scope.roles)
    if scope != Scope(*names, sources=scope.sources, since=scope.since, until=scope.until):
        raise ValueError("history filters by session, agent, role, source and time only")
    alternatives = {
        "session": (turns.c.session_id, scope.sessions),
        "agent": (turns.c.agent_id, scope.agents),
        "role": (turns.c.role, scope.roles),
        "source": (turns.c.source, scope.sources),
    }
    clauses = [turns.c.tenant == _name("tenant", scope.tenant)]
    for name, (column, values) in alternatives.items():
        if values:
            clauses.append(column.in_([_name(name, value) for value in values]))
    if scope.since_us is not None:
        clauses.append(turns.c.created_at_us >= scope.since_us)
    if scope.until_us is not None:
        clauses.append(turns.c.created_at_us < scope.until_us)
    return clauses


def _name(field: str, value: str) -> str:
    """The value, which neither database takes with a NUL or a lone surrogate in it."""
    if storable(value) != value:
        raise UsageError(f"{field}: holds a NUL or a lone surrogate, which no id can have")
    return value
