"""Turns that wait on this machine for the service, oldest first. File I/O: SQLite, in the Hermes home.

A turn is in it before anything is sent, and goes out of it when the service has accepted it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from producers.errors import SpoolFull, StreamUnavailable
from producers.events import TurnEvent
from producers.hermes.settings import FOLDER

FILE = "outbox.db"
BUSY_SECONDS = 2.0
_TABLE = """
CREATE TABLE IF NOT EXISTS turns (
    id INTEGER PRIMARY KEY AUTOINCREMENT, destination TEXT NOT NULL, tenant TEXT NOT NULL, agent TEXT NOT NULL,
    session TEXT NOT NULL, event BLOB NOT NULL, refused TEXT
)
"""
_BYTES = "SELECT coalesce(sum(length(event)), 0) FROM turns"


class Outbox:
    """What one home keeps for one destination; at most `bound` bytes for all. Safe for threads and processes."""

    def __init__(self, home: Path, destination: str, bound: int) -> None:
        self._path = home / FOLDER / FILE
        self._destination = destination
        self._bound = bound

    def add(self, events: Sequence[TurnEvent]) -> None:
        """Keep them; when it returns they are on the disk. Raises `SpoolFull`, or `StreamUnavailable` for the disk."""
        rows = [(self._destination, e.tenant, e.agent_id or "", e.session_id, e.to_json()) for e in events]
        try:
            with self._writing() as connection:
                held = int(connection.execute(_BYTES).fetchone()[0])
                if held + sum(len(row[-1]) for row in rows) > self._bound:
                    raise SpoolFull(
                        f"{self._path} holds {held:,} bytes of turns that wait for the service, spool_bytes is "
                        f"{self._bound:,}: start the service, or raise spool_bytes"
                    )
                insert = "INSERT INTO turns (destination, tenant, agent, session, event) VALUES (?, ?, ?, ?, ?)"
                connection.executemany(insert, rows)
        except (OSError, sqlite3.Error) as error:
            raise StreamUnavailable(f"{self._path} cannot be written: {error}") from None

    def first(self, most: int) -> list[tuple[int, bytes]]:
        """(id, event) of the oldest that are to be sent."""
        query = "SELECT id, event FROM turns WHERE destination = ? AND refused IS NULL ORDER BY id LIMIT ?"
        return [(int(row[0]), bytes(row[1])) for row in self._read(query, (self._destination, most))]

    def waiting(self) -> int:
        """How many are to be sent."""
        query = "SELECT count(*) FROM turns WHERE destination = ? AND refused IS NULL"
        return next((int(row[0]) for row in self._read(query, (self._destination,))), 0)

    def sent(self, ids: Sequence[int]) -> None:
        """Let go of what was accepted."""
        with self._writing() as connection:
            connection.executemany("DELETE FROM turns WHERE id = ?", [(one,) for one in ids])

    def refused(self, identifier: int, reason: str) -> None:
        """Keep it and send it no more."""
        with self._writing() as connection:
            connection.execute("UPDATE turns SET refused = ? WHERE id = ?", (reason, identifier))

    def erase(self, tenant: str, session: str, agent: str | None) -> int:
        """Forget what waits of a session; returns how many turns that were."""
        query, values = "DELETE FROM turns WHERE tenant = ? AND session = ?", [tenant, session]
        if agent is not None:
            query, values = f"{query} AND agent = ?", [*values, agent]
        with self._writing() as connection:
            return connection.execute(query, values).rowcount

    def _read(self, query: str, values: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        if not self._path.exists():
            return []
        with self._opened() as connection:
            return connection.execute(query, values).fetchall()

    @contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with closing(sqlite3.connect(self._path, timeout=BUSY_SECONDS, isolation_level=None)) as connection:
            connection.execute("PRAGMA secure_delete = ON")  # what was sent or forgotten leaves no bytes
            connection.execute(_TABLE)
            yield connection

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with self._opened() as connection:
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
            except BaseException:
                connection.execute("ROLLBACK")
                raise
            connection.execute("COMMIT")
