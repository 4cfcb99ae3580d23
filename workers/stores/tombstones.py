"""Tombstones in the catalog: hiding what is forgotten, and remembering it until the end of time. Does I/O.

A tombstone is written in the transaction that deletes the turns, so recall stops at once; it stays, as digests, so
that an event on its way, such as one in the spool of a machine that is off, is dropped whenever it arrives.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine, RowMapping

from producers.events import from_utc_microseconds
from workers.stores.engine import reading, write_transaction
from workers.stores.probes import drop_unanswered
from workers.stores.selection import Selection, Tombstone, digest
from workers.stores.tables import chunks, tombstones, turns

PAGE = 1000
"""Contents read at once while looking through the catalog."""


@dataclass(frozen=True)
class Forget:
    """A forget whose erasure is not finished, or has just been."""

    tombstone: Tombstone
    selection: Selection
    turns: int
    """Turns and chunks that the catalog held of it."""
    chunks: int
    created_at: datetime


class Tombstones:
    """The tombstones of one catalog; each call is one transaction."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def count(self, selection: Selection) -> tuple[int, int]:
        """(turns, sessions) that the catalog holds of it now."""
        columns = (sa.func.count(), sa.func.count(sa.distinct(turns.c.session_id)))
        with reading(self._engine) as connection:
            row = connection.execute(sa.select(*columns).where(*_clauses(selection))).one()
        return int(row[0]), int(row[1])

    def bury(self, selection: Selection, cutoff: Callable[[], str], keep: Callable[[int, list[str]], None]) -> int:
        """Hide the turns for good and remember that; returns the tombstone's id.

        `cutoff` is asked inside the transaction, when nothing more is written: what was accepted up to that order is
        forgotten. `keep` gets the id and some of the contents, as long as they are there. Raises `StoreUnavailable`.
        """
        with write_transaction(self._engine) as connection:
            latest = sa.select(sa.func.max(turns.c.entry_order)).where(*_clauses(selection))
            # A turn in the catalog was accepted already, whatever a clock that was set back says.
            until = max(cutoff(), connection.execute(latest).scalar() or "")
            insert = tombstones.insert().returning(tombstones.c.id)
            number = int(connection.execute(insert, {**_row(selection, until), "turns": 0, "chunks": 0}).scalar_one())
            keep(number, _longest(connection, selection))
            keys = sa.select(turns.c.turn_key).where(*_clauses(selection))
            gone_chunks = connection.execute(chunks.delete().where(chunks.c.turn_key.in_(keys))).rowcount
            gone_turns = connection.execute(turns.delete().where(*_clauses(selection))).rowcount
            drop_unanswered(connection, selection.tenant)
            statement = tombstones.update().where(tombstones.c.id == number)
            connection.execute(statement.values(turns=gone_turns, chunks=gone_chunks))
        return number

    def unfinished(self) -> list[Forget]:
        """Forgets of which something may still be on a disk, oldest first."""
        query = sa.select(tombstones).where(tombstones.c.erased_at_us.is_(None)).order_by(tombstones.c.id)
        with reading(self._engine) as connection:
            return [_forget(row) for row in connection.execute(query).mappings()]

    def done(self, number: int) -> tuple[int, int, int, bool]:
        """(number, turns, chunks, whether everything is erased) of a forget."""
        columns = (tombstones.c.id, tombstones.c.turns, tombstones.c.chunks, tombstones.c.erased_at_us)
        with reading(self._engine) as connection:
            row = connection.execute(sa.select(*columns).where(tombstones.c.id == number)).one()
        return row.id, row.turns, row.chunks, row.erased_at_us is not None

    def tidy(self, discard: Callable[[set[int]], None]) -> None:
        """Call `discard` with the ids of the unfinished forgets, while no other can begin."""
        with write_transaction(self._engine) as connection:
            query = sa.select(tombstones.c.id).where(tombstones.c.erased_at_us.is_(None))
            discard(set(connection.execute(query).scalars()))

    def finish(self, number: int) -> None:
        """Everything is erased: the names go as well, the digests stay."""
        values = {"erased_at_us": time.time_ns() // 1000, "tenant": None, "session_id": None, "agent_id": None}
        with write_transaction(self._engine) as connection:
            connection.execute(tombstones.update().where(tombstones.c.id == number).values(values))

    def remaining_contents(self) -> Iterator[str]:
        """The content of every turn that the catalog still holds, and its metadata."""
        query = sa.select(turns.c.content, turns.c.metadata).execution_options(yield_per=PAGE)
        with reading(self._engine) as connection:
            for row in connection.execute(query):
                yield f"{row.content}\n{row.metadata}"


def tombstones_of(connection: Connection, tenants: Sequence[str]) -> list[Tombstone]:
    """Every tombstone of these tenants."""
    digests = sorted({str(digest("tenant", tenant)) for tenant in tenants})
    found = []
    for start in range(0, len(digests), PAGE):
        query = sa.select(tombstones).where(tombstones.c.tenant_digest.in_(digests[start : start + PAGE]))
        found += [_tombstone(row) for row in connection.execute(query).mappings()]
    return found


LONGEST = 64
"""Contents kept for the proof that they are gone; the longest ones say most that nobody else says."""


def _longest(connection: Connection, selection: Selection) -> list[str]:
    query = sa.select(turns.c.content).where(*_clauses(selection)).order_by(sa.func.length(turns.c.content).desc())
    return list(connection.execute(query.limit(LONGEST)).scalars())


def _clauses(selection: Selection) -> list[sa.ColumnElement[bool]]:
    """The selection over the catalog's columns."""
    clauses = [turns.c.tenant == selection.tenant]
    if selection.session is not None:
        clauses.append(turns.c.session_id == selection.session)
    if selection.agent is not None:
        clauses.append(turns.c.agent_id == selection.agent)
    if selection.before_us is not None:
        unsaid = sa.and_(turns.c.created_at_us.is_(None), turns.c.entry_order < selection.before_order)
        clauses.append(sa.or_(turns.c.created_at_us < selection.before_us, unsaid))
    return clauses


def _row(selection: Selection, cutoff: str) -> dict[str, Any]:
    return {
        "tenant_digest": digest("tenant", selection.tenant),
        "session_digest": digest("session", selection.session),
        "agent_digest": digest("agent", selection.agent),
        "before_us": selection.before_us,
        "cutoff": cutoff,
        "tenant": selection.tenant,
        "session_id": selection.session,
        "agent_id": selection.agent,
        "created_at_us": time.time_ns() // 1000,
    }


def _tombstone(row: RowMapping) -> Tombstone:
    names = ("id", "tenant_digest", "session_digest", "agent_digest", "before_us", "cutoff")
    return Tombstone(**{name: row[name] for name in names})


def _forget(row: RowMapping) -> Forget:
    before = from_utc_microseconds(row["before_us"])
    selection = Selection(row["tenant"], row["session_id"], row["agent_id"], before)
    created = from_utc_microseconds(row["created_at_us"]) or datetime.now(UTC)
    return Forget(_tombstone(row), selection, row["turns"], row["chunks"], created)
