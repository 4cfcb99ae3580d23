"""Hermes: `state.db` of its home or of a profile, which the agent may be writing. Does I/O.

Read session by session, up to the newest row there was at the start, a page of rows at a time, so that no read
transaction lasts long enough to keep the agent from its checkpoints. A row that is changed after it was read (an
/undo) is not seen again.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from producers.transcripts import databases
from producers.transcripts.hermes_history import History, copies_of_parent, copies_within, verdicts
from producers.transcripts.hermes_messages import (
    Message,
    branched_from,
    is_delegate,
    items,
    message,
    parent_of,
    session_facts,
)
from producers.transcripts.port import Bad, Item, LeftOut, Mark, ReadOptions, Sample, State, Unreadable
from producers.transcripts.text import digest

PAGE_ROWS = 200
"""Rows of one read transaction, and between two marks."""
_NEEDED = frozenset({"id", "session_id", "role", "content"})
_ROW = (
    *("id", "role", "content", "tool_call_id", "tool_calls", "tool_name", "timestamp"),
    *("reasoning", "reasoning_content", "active", "compacted"),
)
"""Never api_content: what the provider was sent, with recall injected."""
_SESSION = (
    *("id", "source", "model", "model_config", "parent_session_id", "end_reason"),
    *("cwd", "git_branch", "title", "profile_name"),
)


class Hermes:
    """Reads `state.db`."""

    name = "hermes"
    in_place = True

    def recognises(self, sample: Sample) -> bool:
        if not databases.is_database(sample):
            return False
        tables = databases.tables_of(sample.path)
        return tables.get("messages", frozenset()) >= _NEEDED and "sessions" in tables

    def read(self, path: Path, options: ReadOptions, state: State | None) -> Iterator[Item]:
        with databases.opened(path) as connection:
            database = _Database(connection)
            newest = database.newest()
            place = _start(database, state)
            while place.after < newest:
                if not place.until:
                    session, said = database.row_at(newest)
                    place = replace(place, until=newest, session=session, digest=said)
                yield from _read_range(database, place, _profile(path), options)
                place = _Place(place.until, session=place.session, digest=place.digest)
            yield Mark(asdict(place), 1.0)


@dataclass(frozen=True)
class _Place:
    """Rows up to `after` are read; then sessions with rows up to `until`, in the order of their first ones there."""

    after: int = 0
    until: int = 0
    """0 where no range has been begun."""
    session: str = ""
    """Whose row the newest of these is: a database gives no id twice, so another's means another database."""
    digest: str = ""
    """Of what that row says: an older copy that was put back has given its id again. Older states have none."""
    first: int = 0
    row: int = 0
    """The session that is being read, by its first row in the range, and the row up to which it is read."""


def _start(database: _Database, state: State | None) -> _Place:
    """From the beginning where the last row is another one than it was; origins tell copies."""
    place = _Place(**state) if state else _Place()
    last = place.until or place.after
    session, said = database.row_at(last)
    other = said and (session != place.session or place.digest not in ("", said))
    return _Place() if other or last > database.newest() else replace(place, digest=place.digest or said)


def _read_range(database: _Database, place: _Place, profile: str, options: ReadOptions) -> Iterator[Item]:
    sessions = database.sessions(place.after, place.until)
    for number, (session, first) in enumerate(sessions):
        if first < place.first:
            continue
        behind = max(place.after, place.row if first == place.first else 0)
        for found, last in _Reading(database, session, profile, options).pages(behind, place.until):
            yield from found
            yield Mark(asdict(replace(place, first=first, row=last)), number / len(sessions))


def _profile(path: Path) -> str:
    """`coder` of `profiles/coder/state.db`."""
    folder = path.resolve().parent
    return folder.name if folder.parent.name == "profiles" else ""


@dataclass(frozen=True)
class _Reading:
    """One session."""

    database: _Database
    session: str
    profile: str
    options: ReadOptions

    def pages(self, behind: int, until: int) -> Iterator[tuple[list[Item], int]]:
        """What some rows say, and the id of the last of them."""
        row = self.database.session(self.session)
        history = self._history(self.session, until)
        copies = copies_within(history) | self._copies_of_parent(row, history)
        facts = session_facts(row, self.profile)
        judged = (
            (identifier, verdict)
            for identifier, verdict in zip(history.ids, verdicts(history, copies), strict=True)
            if identifier > behind
        )
        while page := list(islice(judged, PAGE_ROWS)):
            said, damaged = self.database.messages([identifier for identifier, _ in page])
            found: list[Item] = [Bad(f"messages row {row_id}", "the database is damaged there") for row_id in damaged]
            for identifier, verdict in page:
                if identifier in said:  # else damaged, or deleted a moment ago
                    found.extend(self._of_one(said[identifier], identifier, verdict, facts))
            yield found, page[-1][0]

    def _of_one(self, said: Message, identifier: int, verdict: LeftOut | int, facts: dict[str, Any]) -> Iterator[Item]:
        if isinstance(verdict, LeftOut):
            yield verdict
        else:
            origin = f"hermes:{self.session}:{said.identity}:{verdict}"
            yield from items(said, self.session, origin, f"messages row {identifier}", facts, self.options)

    def _history(self, session: str, until: int) -> History:
        """Of all rows; those that a damaged page hides keep their place too."""
        history = History()
        ids = self.database.ids(session, until)
        for start in range(0, len(ids), PAGE_ROWS):
            page = ids[start : start + PAGE_ROWS]
            said, _ = self.database.messages(page)
            for identifier in page:
                history.add(said.get(identifier) or message({"id": identifier}))
        return history

    def _copies_of_parent(self, row: dict[str, Any], history: History) -> set[int]:
        parent = parent_of(row)
        if parent is None or parent == self.session or is_delegate(row) or not len(history):
            return set()
        ended = self.database.session(parent).get("end_reason")
        branch = branched_from(row) is not None or ended == "branched"
        if not branch and ended != "compression":
            return set()
        return copies_of_parent(self._history(parent, history.ids[0] - 1), history, branch)


class _Database:
    """The queries, each a short read transaction."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        present = databases.columns(connection, "messages")
        if not present >= _NEEDED:
            raise Unreadable("not a Hermes database: it has no table `messages` with id, session_id, role and content")
        self._row = [name for name in _ROW if name in present]
        known = databases.columns(connection, "sessions")
        self._session = [name for name in _SESSION if name in known] if "id" in known else []

    def newest(self) -> int:
        return int(self._connection.execute("SELECT coalesce(max(id), 0) FROM messages").fetchone()[0])

    def row_at(self, row: int) -> tuple[str, str]:
        """Whose row it is, and a digest of its content and time; both empty where there is none, or damage."""
        time = "timestamp" if "timestamp" in self._row else "NULL"
        query = f"SELECT session_id, content, {time} FROM messages WHERE {{}}id = ?"
        found = databases.first_answer(self._connection, (row,), query.format(""), query.format("0 AND "))
        return (databases.as_text(found[0][0]), digest(*found[0][1:])) if found else ("", "")

    def sessions(self, after: int, until: int) -> list[tuple[str, int]]:
        """Those with rows in the range, and the id of the first there, in its order."""
        query = "SELECT session_id, min(id) FROM messages WHERE {0}id > ? AND {0}id <= ? GROUP BY session_id ORDER BY 2"
        found = databases.first_answer(self._connection, (after, until), query.format(""), query.format("+"))
        return [(databases.as_text(session), int(first)) for session, first in found]

    def session(self, identifier: str) -> dict[str, Any]:
        """Its row; empty where there is none, or damage."""
        if not self._session:
            return {}
        query = f"SELECT {', '.join(self._session)} FROM sessions WHERE {{}}id = ?"
        found = databases.first_answer(self._connection, (identifier,), query.format(""), query.format("0 AND "))
        return dict(zip(self._session, found[0], strict=True)) if found else {}

    def ids(self, session: str, until: int) -> list[int]:
        """Of the session's rows, without a look at their content."""
        query = "SELECT id FROM messages {} WHERE session_id = ? AND id <= ?"
        values = (session, until)
        found = databases.first_answer(self._connection, values, query.format(""), query.format("NOT INDEXED"))
        return sorted(int(row[0]) for row in found)

    def messages(self, ids: Sequence[int]) -> tuple[dict[int, Message], list[int]]:
        """Those that are there, by id, and the ids of those that damage hides. Images are let go row by row."""
        query = f"SELECT {', '.join(self._row)} FROM messages WHERE id IN ({', '.join('?' * len(ids))})"
        try:
            rows = (dict(zip(self._row, row, strict=True)) for row in self._connection.execute(query, ids))
            return {row["id"]: message(row) for row in rows}, []
        except databases.DAMAGE as error:
            if databases.is_busy(error):
                raise
        if len(ids) == 1:
            return {}, list(ids)
        answers = [self.messages([identifier]) for identifier in ids]
        return (
            {identifier: said for found, _ in answers for identifier, said in found.items()},
            [identifier for _, damaged in answers for identifier in damaged],
        )
