"""Which turns the retention rules no longer keep, and hiding those for good. Does I/O on the catalog.

The rules are judged in SQL, so that neither a million turns nor their contents pass through memory. What is hidden is
listed in `doomed` by key until it is erased everywhere.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal, NamedTuple

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine

from producers.events import utc_microseconds
from producers.retention import ANY, RetentionRule
from workers.order import MILLISECOND_DIGITS
from workers.stores.engine import reading, write_transaction
from workers.stores.probes import drop_unanswered
from workers.stores.selection import RETENTION
from workers.stores.tables import chunks, doomed, tombstones, turns
from workers.stores.turn_writer import slices

Reason = Literal["age", "ended", "turns"]
"""Older than the rule allows, of a session that ended long enough ago, or beyond the newest turns of its session."""
SESSIONS = 100
"""Sessions judged at once."""
PIECE = 2000
"""Turns hidden in one transaction, which takes about .1 s; writers wait as long."""
DOOMED_PAGE = 1000


@dataclass(frozen=True)
class Due:
    """Turns that one rule no longer keeps, for one reason."""

    rule: int
    """Its place among the rules, from 0."""
    tenant: str
    source: str
    reason: Reason
    sessions: int
    turns: int


class Place(NamedTuple):
    """A session in the order of the catalog's index."""

    tenant: str
    session_id: str


Span = tuple[Place | None, Place]
"""Sessions after the first place (None: from the start) up to the last."""


@dataclass(frozen=True)
class Buried:
    """One piece that was hidden."""

    number: int
    """The tombstone."""
    turns: int
    chunks: int


class Retention:
    """Retention over one catalog; each call is one transaction."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def due(self, rules: Sequence[RetentionRule], now: datetime) -> list[Due]:
        """What would go at this moment, by rule, tenant, source and reason."""
        if not rules:
            return []
        found = _due(rules, now, None)
        group = (found.c.rule, found.c.tenant, found.c.source, found.c.reason)
        counts = (sa.func.count(sa.distinct(found.c.session_id)), sa.func.count())
        with reading(self._engine) as connection:
            rows = connection.execute(sa.select(*group, *counts).group_by(*group).order_by(*group))
            return [Due(*row) for row in rows]

    def spans(self) -> Iterator[Span]:
        """All sessions, some at a time; whole ones, since the rules look at a session as a whole."""
        after: Place | None = None
        sessions = sa.select(turns.c.tenant, turns.c.session_id).distinct().order_by(turns.c.tenant, turns.c.session_id)
        while True:
            with reading(self._engine) as connection:
                rows = connection.execute(sessions.where(*_within((after, None))).limit(SESSIONS)).all()
            if not rows:
                return
            last = Place(*rows[-1])
            yield after, last
            after = last

    def pieces(self, rules: Sequence[RetentionRule], now: datetime, span: Span) -> Iterator[list[str]]:
        """The keys of what is due in these sessions, judged once, up to `PIECE` at a time.

        A session that is judged anew without what has gone may seem to have ended earlier, since one source of it is
        kept for longer than another; a run would take more than its dry run counts.
        """
        if not rules:
            return
        with reading(self._engine) as connection:
            keys = list(connection.execute(sa.select(_due(rules, now, span).c.turn_key)).scalars())
        for start in range(0, len(keys), PIECE):
            yield keys[start : start + PIECE]

    def bury(
        self,
        rules: Sequence[RetentionRule],
        now: datetime,
        span: Span,
        piece: Sequence[str],
        number: int | None,
        keep: Callable[[int, int, Iterator[str]], None],
    ) -> Buried | None:
        """Hide those turns of a piece of these sessions for good that are still due; None when none is.

        They are judged inside the transaction, so a session that has just gone on is not one that has ended. `number`
        is the tombstone that they are added to; None makes one. `keep` gets its number, how many turns go, and their
        contents, longest first, while they are there. Raises `StoreUnavailable`.
        """
        with write_transaction(self._engine) as connection:
            due = set(connection.execute(sa.select(_due(rules, now, span).c.turn_key)).scalars())
            keys = [key for key in piece if key in due]
            if not keys:
                return None
            if number is None:
                number = int(connection.execute(tombstones.insert().returning(tombstones.c.id), _row()).scalar_one())
            keep(number, len(keys), _contents(connection, keys))
            gone = _delete(connection, keys, number)
            added = {"turns": tombstones.c.turns + len(keys), "chunks": tombstones.c.chunks + gone}
            connection.execute(tombstones.update().where(tombstones.c.id == number).values(added))
        return Buried(number, len(keys), gone)

    def doomed(self) -> Iterator[list[str]]:
        """Keys of what is hidden and not yet erased, some at a time; also of turns that came again since."""
        query = sa.select(doomed.c.turn_key).order_by(doomed.c.turn_key).limit(DOOMED_PAGE)
        last = ""
        while True:
            with reading(self._engine) as connection:
                keys = list(connection.execute(query.where(doomed.c.turn_key > last)).scalars())
            if not keys:
                return
            yield keys
            last = keys[-1]

    def unfinished(self) -> list[int]:
        """Tombstones of retention of which something may still be on a disk."""
        query = sa.select(tombstones.c.id).where(tombstones.c.reason == RETENTION, tombstones.c.erased_at_us.is_(None))
        with reading(self._engine) as connection:
            return list(connection.execute(query).scalars())


def said_us() -> sa.ColumnElement[int]:
    """When a turn was said, or else accepted: microseconds since 1970."""
    accepted_ms = sa.cast(sa.func.substr(turns.c.entry_order, 1, MILLISECOND_DIGITS), sa.BigInteger)
    return sa.func.coalesce(turns.c.created_at_us, accepted_ms * 1000)


def _due(rules: Sequence[RetentionRule], now: datetime, span: Span | None) -> sa.Subquery:
    """turn_key, tenant, session_id, source, rule and reason of every turn that is due; of the sessions in `span`."""
    session = [turns.c.tenant, turns.c.session_id]
    said, rule = said_us(), _rule(rules)
    newest_first = [turns.c.turn_index.desc(), said.desc(), turns.c.turn_key]
    judged = (
        sa.select(
            turns.c.turn_key,
            *session,
            turns.c.source,
            rule.label("rule"),
            said.label("said"),
            sa.func.max(said).over(partition_by=session).label("last_said"),
            sa.func.row_number().over(partition_by=[*session, rule], order_by=newest_first).label("place"),
        )
        .where(*_within(span or (None, None)))
        .subquery()
    )
    columns = judged.c

    def beyond(value: sa.ColumnElement[int], limits: dict[int, int], too_far: Callable[[Any, int], Any]) -> Any:
        clauses = [sa.and_(columns.rule == number, too_far(value, limit)) for number, limit in limits.items()]
        return sa.or_(sa.false(), *clauses)

    def moments(field: str) -> dict[int, int]:
        days = {number: getattr(one, field) for number, one in enumerate(rules)}
        return {n: utc_microseconds(now - timedelta(days=value)) or 0 for n, value in days.items() if value is not None}

    most = {number: one.max_turns for number, one in enumerate(rules) if one.max_turns is not None}
    reason = sa.case(
        (beyond(columns.said, moments("max_age_days"), lambda value, limit: value < limit), "age"),
        (beyond(columns.last_said, moments("ended_days"), lambda value, limit: value < limit), "ended"),
        (beyond(columns.place, most, lambda value, limit: value > limit), "turns"),
    ).label("reason")
    names = (columns.turn_key, columns.tenant, columns.session_id, columns.source, columns.rule)
    found = sa.select(*names, reason).subquery()
    return sa.select(found).where(found.c.reason.is_not(None)).subquery()


def _rule(rules: Sequence[RetentionRule]) -> sa.ColumnElement[int]:
    """The number of the rule that governs a turn; NULL where none does."""
    ranked = sorted(enumerate(rules), key=lambda one: -one[1].rank)
    return sa.case(*[(sa.and_(sa.true(), *_named(rule)), number) for number, rule in ranked])


def _named(rule: RetentionRule) -> list[sa.ColumnElement[bool]]:
    clauses = [turns.c.tenant == rule.tenant] if rule.tenant != ANY else []
    return clauses + ([turns.c.source == rule.source] if rule.source != ANY else [])


def _within(span: tuple[Place | None, Place | None]) -> list[sa.ColumnElement[bool]]:
    place = sa.tuple_(turns.c.tenant, turns.c.session_id)
    after, last = span
    clauses = [place > sa.tuple_(*after)] if after is not None else []
    return clauses + ([place <= sa.tuple_(*last)] if last is not None else [])


def _contents(connection: Connection, keys: Sequence[str]) -> Iterator[str]:
    """The contents of these turns, longest first within each slice of the keys."""
    for some in slices(keys):
        query = sa.select(turns.c.content).where(turns.c.turn_key.in_(some))
        yield from connection.execute(query.order_by(sa.func.length(turns.c.content).desc())).scalars()


def _delete(connection: Connection, keys: Sequence[str], number: int) -> int:
    """Move the turns to `doomed`; returns how many chunks they had."""
    gone = 0
    tenants: set[str] = set()
    for some in slices(keys):
        tenants.update(connection.execute(sa.select(turns.c.tenant).where(turns.c.turn_key.in_(some))).scalars())
        gone += connection.execute(chunks.delete().where(chunks.c.turn_key.in_(some))).rowcount
        connection.execute(turns.delete().where(turns.c.turn_key.in_(some)))
        connection.execute(doomed.delete().where(doomed.c.turn_key.in_(some)))  # pushed again before it was erased
    connection.execute(doomed.insert(), [{"turn_key": key, "tombstone_id": number} for key in keys])
    for tenant in tenants:
        drop_unanswered(connection, tenant)
    return gone


def _row() -> dict[str, Any]:
    """A tombstone that is nobody's by name: no tenant has the empty digest."""
    counts = {"turns": 0, "chunks": 0, "created_at_us": time.time_ns() // 1000}
    return {"tenant_digest": "", "cutoff": "", "reason": RETENTION, **counts}
