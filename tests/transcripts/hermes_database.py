"""A Hermes database in small, made as Hermes makes one: appended rows, compaction in place, branches, rewinds."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

NUL_JSON = "\x00json:"
START = 1_760_000_000.0
"""The time of the first row; each later one comes a minute after."""
SUMMARY = "[CONTEXT COMPACTION — REFERENCE ONLY] Earlier turns were compacted into the summary below."

_SCHEMA = """
CREATE TABLE sessions (
    id TEXT PRIMARY KEY, source TEXT NOT NULL, user_id TEXT, model TEXT, model_config TEXT, system_prompt TEXT,
    parent_session_id TEXT, started_at REAL NOT NULL, ended_at REAL, end_reason TEXT, cwd TEXT, git_branch TEXT,
    title TEXT, profile_name TEXT
);
CREATE TABLE messages (
    id INTEGER PRIMARY KEY AUTOINCREMENT, session_id TEXT NOT NULL, role TEXT NOT NULL, content TEXT,
    tool_call_id TEXT, tool_calls TEXT, tool_name TEXT, timestamp REAL NOT NULL, reasoning TEXT,
    reasoning_content TEXT, active INTEGER NOT NULL DEFAULT 1, compacted INTEGER NOT NULL DEFAULT 0, api_content TEXT
);
CREATE INDEX idx_messages_session ON messages(session_id, timestamp);
"""
_COLUMNS = ("role", "content", "tool_call_id", "tool_calls", "tool_name", "timestamp", "reasoning", "api_content")


class HermesDatabase:
    """Writes one; every call is committed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._clock = START
        with closing(sqlite3.connect(path)) as connection:
            connection.executescript("PRAGMA journal_mode = wal;" + _SCHEMA)

    def session(
        self, identifier: str, source: str = "cli", config: dict[str, Any] | None = None, **columns: Any
    ) -> None:
        values = {"id": identifier, "source": source, "started_at": self._clock, **columns}
        if config is not None:
            values["model_config"] = json.dumps(config)
        self.execute(
            f"INSERT INTO sessions ({', '.join(values)}) VALUES ({', '.join('?' * len(values))})", *values.values()
        )

    def say(self, session: str, role: str, content: Any = None, **columns: Any) -> int:
        """A row; a list or an object as content is stored as Hermes stores it."""
        if isinstance(content, (list, dict)):
            content = NUL_JSON + json.dumps(content)
        if "tool_calls" in columns:
            columns["tool_calls"] = json.dumps(columns["tool_calls"])
        values = {"session_id": session, "role": role, "content": content, "timestamp": self._tick(), **columns}
        return self.execute(
            f"INSERT INTO messages ({', '.join(values)}) VALUES ({', '.join('?' * len(values))})", *values.values()
        )

    def compact(self, session: str, head: int, tail: int, summary: str = SUMMARY, into: str | None = None) -> None:
        """In place; with `into`, at the beginning of a session that continues this one."""
        kept = self._live(session)
        if into is None:
            self.execute("UPDATE messages SET active = 0, compacted = 1 WHERE session_id = ? AND active = 1", session)
        target = into or session
        self._copy(target, kept[:head])
        self.say(target, "user", summary)
        self._copy(target, kept[len(kept) - tail :])

    def branch(self, parent: str, child: str, whole: bool = True, most: int | None = None) -> None:
        """`whole` False: roles and texts only, as the terminal interface copies; `most`: the copy so far."""
        self.session(child, config={"_branched_from": parent}, parent_session_id=parent)
        rows = self._live(parent)[:most]
        if not whole:
            rows = [(row[0], row[1], None, None, None, row[5], None, None) for row in rows]
        self._copy(child, [(*row[:5], self._tick(), *row[6:]) for row in rows])

    def rewind(self, session: str, row: int) -> None:
        self.execute("UPDATE messages SET active = 0 WHERE session_id = ? AND id >= ? AND active = 1", session, row)

    def rewrite(self, session: str) -> None:
        """Delete and insert again, as /retry and editors do."""
        rows = self._live(session)
        self.execute("DELETE FROM messages WHERE session_id = ?", session)
        self._copy(session, rows)

    def export(self, path: Path, order: Sequence[str] | None = None) -> None:
        """As `hermes sessions export`: sessions, mostly the newest first, with their active messages."""
        with closing(sqlite3.connect(self.path)) as connection:
            connection.row_factory = sqlite3.Row
            sessions = {row["id"]: dict(row) for row in connection.execute("SELECT * FROM sessions")}
            lines = [
                json.dumps({**sessions[name], "messages": self._exported(connection, name)}, ensure_ascii=False)
                for name in order or reversed(sessions)
            ]
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")

    def execute(self, statement: str, *values: Any) -> int:
        with closing(sqlite3.connect(self.path)) as connection, connection:
            return connection.execute(statement, values).lastrowid or 0

    def _exported(self, connection: sqlite3.Connection, session: str) -> list[dict[str, Any]]:
        query = "SELECT * FROM messages WHERE session_id = ? AND active = 1 ORDER BY id"
        found = [dict(row) for row in connection.execute(query, (session,))]
        for row in found:
            if isinstance(row["content"], str) and row["content"].startswith(NUL_JSON):
                row["content"] = json.loads(row["content"].removeprefix(NUL_JSON))
            row["tool_calls"] = json.loads(row["tool_calls"]) if row["tool_calls"] else None
        return found

    def _live(self, session: str) -> list[tuple[Any, ...]]:
        query = f"SELECT {', '.join(_COLUMNS)} FROM messages WHERE session_id = ? AND active = 1 ORDER BY id"
        with closing(sqlite3.connect(self.path)) as connection:
            return connection.execute(query, (session,)).fetchall()

    def _copy(self, session: str, rows: Sequence[tuple[Any, ...]]) -> None:
        places = ", ".join("?" * (len(_COLUMNS) + 1))
        for row in rows:
            self.execute(f"INSERT INTO messages (session_id, {', '.join(_COLUMNS)}) VALUES ({places})", session, *row)

    def _tick(self) -> float:
        self._clock += 60
        return self._clock


def talk(database: HermesDatabase, session: str, *contents: str) -> None:
    """Turns by turns, the user's first."""
    for number, content in enumerate(contents):
        database.say(session, "assistant" if number % 2 else "user", content)
