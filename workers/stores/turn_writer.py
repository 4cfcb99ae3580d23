"""How a batch of turns is written to the catalog: judged, inserted or replaced, and later marked as indexed.

Works on a connection that holds the write lock; opens nothing itself.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from producers.errors import StoreUnavailable
from producers.events import TurnEvent, utc_microseconds
from workers.stores.selection import Facts
from workers.stores.tables import INDEXED, PENDING, chunks, turns
from workers.stores.tombstones import tombstones_of

Outcome = Literal["new", "revision", "resume", "duplicate", "stale", "forgotten"]
"""What an arriving event is to the catalog; the first three are written, the others are not."""
WRITTEN = ("new", "revision", "resume")
QUERY_VALUES = 500
"""Values in one IN list; SQLite allows 32,766 in a statement."""


@dataclass(frozen=True)
class KnownTurn:
    """What the catalog holds of an identity."""

    content_hash: str
    entry_order: str
    state: str
    revision: int


@dataclass(frozen=True)
class ChunkSpan:
    """One chunk of a turn to be written: its space and its place, not its text."""

    space_id: str
    vector_id: str
    index: int
    total: int
    start: int
    end: int
    kind: str
    language: str | None


@dataclass(frozen=True)
class TurnWrite:
    """An event with the chunks made of it, of each space that turns are written to."""

    event: TurnEvent
    entry_order: str
    chunks: tuple[ChunkSpan, ...]
    accepted: str | None = None
    """The order of the moment when a spool accepted the event; None: the stream did, in `entry_order`."""


def judge(event_hash: str, entry_order: str, known: KnownTurn | None) -> Outcome:
    """What an event is, given what is known of its identity. Pure.

    The higher stream entry wins whatever order the workers run in.
    """
    if known is None:
        return "new"
    if known.content_hash == event_hash:
        return "duplicate" if known.state == INDEXED else "resume"
    return "revision" if entry_order > known.entry_order else "stale"


def write_turns(connection: Connection, active_id: str, writes: Sequence[TurnWrite]) -> list[Outcome]:
    """Store turns and chunks as pending; one outcome a write, in order. The identities must be distinct.

    An event that a tombstone covers is forgotten: it was accepted before, and comes too late.
    A write without chunks of the active space stands for a duplicate or a stale revision; raises `StoreUnavailable`
    when it is neither. A duplicate still raises the entry order, so that an older revision that arrives later stays
    older.
    """
    now = time.time_ns() // 1000
    known = known_turns(connection, [write.event.key for write in writes])
    graves = tombstones_of(connection, [write.event.tenant for write in writes])
    outcomes: list[Outcome] = [
        "forgotten"
        if any(grave.covers(Facts.of_event(w.event, w.accepted or w.entry_order)) for grave in graves)
        else judge(w.event.content_hash, w.entry_order, known.get(w.event.key))
        for w in writes
    ]
    if any(
        outcome in WRITTEN and all(span.space_id != active_id for span in write.chunks)
        for write, outcome in zip(writes, outcomes, strict=True)
    ):
        # It was a duplicate when the caller looked, so it was not chunked, or the active space was another one.
        raise StoreUnavailable("catalog: a turn changed while its duplicate was on its way; the batch is tried again")
    by_outcome: dict[Outcome, list[TurnWrite]] = {}
    for write, outcome in zip(writes, outcomes, strict=True):
        by_outcome.setdefault(outcome, []).append(write)
    created = by_outcome.get("new", [])
    replaced = by_outcome.get("revision", [])
    resumed = by_outcome.get("resume", [])
    if created:
        connection.execute(turns.insert(), [_row(write, now, revision=0) for write in created])
    if replaced:
        _replace(connection, replaced, known, now)
    _raise_order(connection, resumed + by_outcome.get("duplicate", []), known)
    # Which spaces there are, and which of them have its vectors, may be another matter than when it was cut short.
    _delete_chunks(connection, replaced + resumed)
    rows = [chunk_row(write.event.key, span) for write in created + replaced + resumed for span in write.chunks]
    if rows:
        connection.execute(chunks.insert(), rows)
    return outcomes


def mark_indexed(connection: Connection, pairs: Sequence[tuple[str, str]]) -> dict[str, str | None]:
    """Mark (turn_key, content_hash) as indexed where that content is the current one.

    Returns the keys for which it is not, with the current hash (None: the turn is gone).
    """
    if not pairs:
        return {}
    statement = (
        turns.update()
        .where(turns.c.turn_key == sa.bindparam("key"), turns.c.content_hash == sa.bindparam("hash"))
        .values(state=INDEXED)
    )
    marked = connection.execute(statement, [{"key": key, "hash": content_hash} for key, content_hash in pairs])
    if marked.rowcount == len(pairs):
        return {}
    known = known_turns(connection, [key for key, _ in pairs])
    current = {key: known[key].content_hash if key in known else None for key, _ in pairs}
    return {key: current[key] for key, wanted in pairs if current[key] != wanted}


def known_turns(connection: Connection, turn_keys: Sequence[str]) -> dict[str, KnownTurn]:
    """What the catalog holds of these identities; an unknown key is absent."""
    columns = (turns.c.turn_key, turns.c.content_hash, turns.c.entry_order, turns.c.state, turns.c.revision)
    found = {}
    for keys in slices(turn_keys):
        for row in connection.execute(sa.select(*columns).where(turns.c.turn_key.in_(keys))):
            found[row.turn_key] = KnownTurn(row.content_hash, row.entry_order, row.state, row.revision)
    return found


def slices(values: Sequence[str]) -> Iterator[Sequence[str]]:
    """`values` in pieces that fit one IN list."""
    for start in range(0, len(values), QUERY_VALUES):
        yield values[start : start + QUERY_VALUES]


def _delete_chunks(connection: Connection, writes: Sequence[TurnWrite]) -> None:
    for keys in slices([write.event.key for write in writes]):
        connection.execute(chunks.delete().where(chunks.c.turn_key.in_(keys)))


def _replace(connection: Connection, writes: Sequence[TurnWrite], known: Mapping[str, KnownTurn], now: int) -> None:
    """Put the new content where the old one was."""
    rows = [_row(write, now, revision=known[write.event.key].revision + 1) for write in writes]
    names = [name for name in rows[0] if name != "turn_key"]
    statement = (
        turns.update()
        .where(turns.c.turn_key == sa.bindparam("_key"))
        .values({name: sa.bindparam(f"_{name}") for name in names})
    )
    values = [{"_key": row["turn_key"], **{f"_{name}": row[name] for name in names}} for row in rows]
    connection.execute(statement, values)


def _raise_order(connection: Connection, writes: Sequence[TurnWrite], known: Mapping[str, KnownTurn]) -> None:
    higher = [
        {"_key": write.event.key, "_order": write.entry_order}
        for write in writes
        if write.entry_order > known[write.event.key].entry_order
    ]
    if higher:
        statement = turns.update().where(turns.c.turn_key == sa.bindparam("_key"))
        connection.execute(statement.values(entry_order=sa.bindparam("_order")), higher)


def _row(write: TurnWrite, now: int, *, revision: int) -> dict[str, Any]:
    event = write.event
    return {
        "turn_key": event.key,
        "tenant": event.tenant,
        "session_id": event.session_id,
        "turn_index": event.turn_index,
        "role": event.role,
        "agent_id": event.agent_id,
        "speaker": event.speaker,
        "source": event.source,
        "tags": json.dumps(event.tags, ensure_ascii=False),
        "metadata": json.dumps(event.metadata, ensure_ascii=False),
        "content": event.content,
        "content_hash": event.content_hash,
        "created_at_us": utc_microseconds(event.created_at),
        "ingested_at_us": now,
        "entry_order": write.entry_order,
        "revision": revision,
        "state": PENDING,
    }


def chunk_row(turn_key: str, span: ChunkSpan) -> dict[str, Any]:
    """The row of a chunk."""
    return {
        "vector_id": span.vector_id,
        "turn_key": turn_key,
        "space_id": span.space_id,
        "chunk_index": span.index,
        "total_chunks": span.total,
        "start": span.start,
        "end": span.end,
        "kind": span.kind,
        "language": span.language,
    }
