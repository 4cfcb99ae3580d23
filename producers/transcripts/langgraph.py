"""LangGraph: the database of a SqliteSaver, which the graph may be writing. Does I/O.

Each checkpoint holds the history so far, so only the newest of a thread and namespace is read. There are no times: a
checkpoint's is that of the step, not of the message.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from producers.transcripts import databases
from producers.transcripts.langchain_messages import Conversation, conversations, message
from producers.transcripts.msgpack_values import value_of
from producers.transcripts.port import Bad, Item, LeftOut, Mark, ReadOptions, Said, Sample, State, Unreadable

MAX_CHECKPOINT_BYTES = 256 << 20
"""A larger one is reported and skipped: decoded it takes some times its size in memory."""
_NEEDED = frozenset({"thread_id", "checkpoint_ns", "checkpoint_id", "type", "checkpoint"})
MARK_EVERY = 200


class LangGraph:
    """Reads a SqliteSaver's database."""

    name = "langgraph"
    in_place = True

    def recognises(self, sample: Sample) -> bool:
        if not databases.is_database(sample):
            return False
        return databases.tables_of(sample.path).get("checkpoints", frozenset()) >= _NEEDED

    def read(self, path: Path, options: ReadOptions, state: State | None) -> Iterator[Item]:
        with databases.opened(path) as connection:
            if not databases.columns(connection, "checkpoints") >= _NEEDED:
                raise Unreadable("not a SqliteSaver's database: it has no table `checkpoints` with the usual columns")
            newest = _newest(connection)
            place = _start(connection, state)
            while place.after < newest:
                if not place.until:
                    place = replace(place, until=newest, rows=_rows(connection, newest))
                yield from _read_range(connection, place, options)
                place = _Place(place.until, rows=place.rows)
            yield Mark(asdict(place), 1.0)


@dataclass(frozen=True)
class _Place:
    """Checkpoints up to `after` are read; then the threads with newer ones up to `until`, in their order.

    A checkpoint's id begins with its time, so that one order holds for all threads.
    """

    after: str = ""
    until: str = ""
    thread: str = ""
    namespace: str = ""
    items: int = 0
    """The thread that is being read, and how many of its items are."""
    rows: int = 0
    """How many checkpoints there were up to the last of these. Older states have none."""


def _start(connection: sqlite3.Connection, state: State | None) -> _Place:
    """From the beginning where the last checkpoint is gone: another database, or a pruned one; origins tell copies.

    Also where older ones have come: another database was merged into this one.
    """
    place = _Place(**state) if state else _Place()
    last = place.until or place.after
    query = "SELECT 1 FROM checkpoints WHERE checkpoint_id = ? LIMIT 1"
    gone = connection.execute(query, (last,)).fetchone() is None
    rows = _rows(connection, last)
    return _Place() if gone or 0 < place.rows < rows else replace(place, rows=rows)


def _read_range(connection: sqlite3.Connection, place: _Place, options: ReadOptions) -> Iterator[Item]:
    threads = _threads(connection, place.after, place.until)
    for number, (thread, namespace, checkpoint) in enumerate(threads):
        key = (thread, namespace)
        if key < (place.thread, place.namespace):
            continue
        passed = place.items if key == (place.thread, place.namespace) else 0
        here = replace(place, thread=thread, namespace=namespace)
        done = 0
        for done, item in enumerate(_Thread(connection, *key, place.after).items(checkpoint, options), 1):
            if done > passed:
                yield item
                if done % MARK_EVERY == 0:
                    yield Mark(asdict(replace(here, items=done)), number / len(threads))
        yield Mark(asdict(replace(here, items=done)), (number + 1) / len(threads))


def _rows(connection: sqlite3.Connection, last: str) -> int:
    """How many checkpoints there are up to that id."""
    query = "SELECT count(*) FROM checkpoints WHERE checkpoint_id <= ?"
    return int(connection.execute(query, (last,)).fetchone()[0])


def _newest(connection: sqlite3.Connection) -> str:
    return databases.as_text(connection.execute("SELECT max(checkpoint_id) FROM checkpoints").fetchone()[0])


def _threads(connection: sqlite3.Connection, after: str, until: str) -> list[tuple[str, str, str]]:
    """Thread, namespace and newest checkpoint of those that have one in the range."""
    rows = connection.execute(
        "SELECT thread_id, checkpoint_ns, max(checkpoint_id) FROM checkpoints "
        "WHERE checkpoint_id > ? AND checkpoint_id <= ? GROUP BY 1, 2",
        (after, until),
    ).fetchall()
    return sorted((databases.as_text(a), databases.as_text(b), databases.as_text(c)) for a, b, c in rows)


class _Unusable(Exception):
    """A thread's newest checkpoint cannot be used; the message says why, without content."""


class _Thread:
    """One thread in one namespace: a graph, or a graph inside it, whose messages keep their ids in both."""

    def __init__(self, connection: sqlite3.Connection, thread: str, namespace: str, after: str) -> None:
        self._connection = connection
        self._key = (thread, namespace)
        self._after = after
        session = f"{thread}/{namespace}" if namespace else thread
        parent = {"parent_session": thread} if namespace else {}
        self._conversation = Conversation(session, f"langgraph:{thread}", f"thread {thread[:100]}", parent)

    def items(self, checkpoint: str, options: ReadOptions) -> Iterator[Said | Bad | LeftOut]:
        """What its messages say that the newest checkpoint before this run did not hold."""
        try:
            entries = self._messages(checkpoint)
        except _Unusable as error:
            yield Bad(self._conversation.place, str(error))
            return
        known = self._known()
        for item in self._conversation.items(entries, options):
            if not (isinstance(item, Said) and item.origin in known):
                yield item

    def _known(self) -> set[str]:
        if not self._after:
            return set()
        row = self._connection.execute(
            "SELECT max(checkpoint_id) FROM checkpoints "
            "WHERE thread_id = ? AND checkpoint_ns = ? AND checkpoint_id <= ?",
            (*self._key, self._after),
        ).fetchone()
        try:
            entries = self._messages(databases.as_text(row[0])) if row[0] is not None else []
        except _Unusable:
            return set()
        everything = self._conversation.items(entries, ReadOptions(thinking=True, tool_results="full"))
        return {item.origin for item in everything if isinstance(item, Said)}

    def _messages(self, checkpoint: str) -> list[Any]:
        """The messages of the checkpoint's channels; raises `_Unusable`."""
        kind, data = self._row(checkpoint)
        whole = _decoded(kind, data)
        values = whole.get("channel_values") if isinstance(whole, dict) else None
        if not isinstance(values, dict):
            raise _Unusable("its newest checkpoint has no channels")
        entries: list[Any] = []
        for name, value in values.items():
            if not str(name).startswith("__"):  # the graph's own: input that is not yet in a channel
                for found in conversations(value):
                    entries.extend(found)
        return _once(entries)

    def _row(self, checkpoint: str) -> tuple[str, bytes]:
        where = "FROM checkpoints WHERE thread_id = ? AND checkpoint_ns = ? AND checkpoint_id = ?"
        values = (*self._key, checkpoint)
        try:
            size = self._connection.execute(f"SELECT length(checkpoint) {where}", values).fetchone()
            if size is None:
                raise _Unusable("its newest checkpoint is gone")
            if size[0] and size[0] > MAX_CHECKPOINT_BYTES:
                raise _Unusable(f"its newest checkpoint is larger than {MAX_CHECKPOINT_BYTES >> 20} MiB")
            kind, data = self._connection.execute(f"SELECT type, checkpoint {where}", values).fetchone() or ("", b"")
        except databases.DAMAGE as error:
            if databases.is_busy(error):
                raise
            raise _Unusable("the database is damaged there") from None
        return databases.as_text(kind), data if isinstance(data, bytes) else databases.as_text(data).encode()


def _decoded(kind: str, data: bytes) -> Any:
    try:
        if kind == "msgpack":
            return value_of(data)
        if kind in ("json", ""):  # older versions
            return json.loads(data.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        raise _Unusable(f"its newest checkpoint is not valid {kind or 'json'}") from None
    raise _Unusable("its newest checkpoint is in a form that is not read, such as pickle")


def _once(entries: list[Any]) -> list[Any]:
    """Without the messages that stand in several channels of one checkpoint."""
    kept, seen = [], set()
    for entry in entries:
        found = message(entry)
        if found and found.id:
            if found.id in seen:
                continue
            seen.add(found.id)
        kept.append(entry)
    return kept
