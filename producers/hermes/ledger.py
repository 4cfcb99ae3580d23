"""Which turn index each exchange of a live session has: 2n for what was asked, 2n + 1 for the answer. File I/O: SQLite.

An exchange that is told again, after a restart or an /undo, has the index that it had. It keeps digests, no text.
"""

from __future__ import annotations

import hashlib
import sqlite3
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from producers.events import LIVE_FROM
from producers.hermes.settings import FOLDER

FILE = "ledger.db"
BUSY_SECONDS = 2.0
"""How long another process of the same home may hold the file."""
_TABLE = """
CREATE TABLE IF NOT EXISTS exchanges (
    session TEXT NOT NULL, number INTEGER NOT NULL, question TEXT NOT NULL, digest TEXT NOT NULL,
    PRIMARY KEY (session, number)
) WITHOUT ROWID
"""


class Ledger:
    """The ledger of one Hermes home. Safe for several threads and processes."""

    def __init__(self, home: Path) -> None:
        self._path = home / FOLDER / FILE
        self._lock = threading.Lock()

    def index_of(self, session: str, question: str, answer: str, asked: Sequence[str] | None = None) -> int:
        """The index of the exchange's question.

        `asked`: what the user has said in the session as it stands now, when some of what was said has been taken back
        since: the index of the first exchange that is gone is given again, so that the new one replaces it. Without a
        file that can be written, an index no other exchange has.
        """
        try:
            with self._lock, self._opened() as connection:
                return LIVE_FROM + 2 * _numbered(connection, session, question, answer, asked)
        except (OSError, sqlite3.Error):
            return LIVE_FROM + 2 * (time.time_ns() // 1000)

    def _opened(self) -> _Transaction:
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        return _Transaction(self._path)


class _Transaction:
    """A connection for one writing transaction; opening costs less than a millisecond, and a fork finds none open."""

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None)

    def __enter__(self) -> sqlite3.Connection:
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            self._connection.execute(_TABLE)
        except BaseException:
            self._connection.close()
            raise
        return self._connection

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        try:
            self._connection.execute("ROLLBACK" if kind else "COMMIT")
        finally:
            self._connection.close()


def _numbered(
    connection: sqlite3.Connection, session: str, question: str, answer: str, asked: Sequence[str] | None
) -> int:
    rows = connection.execute(
        "SELECT number, question, digest FROM exchanges WHERE session = ? ORDER BY number", (session,)
    ).fetchall()
    digest = _digest(question, answer)
    if rows and rows[-1][2] == digest:
        return int(rows[-1][0])
    kept = rows
    if asked is not None:
        kept = rows[: _still_said([row[1] for row in rows], [_digest(said) for said in asked], _digest(question))]
    number = int(kept[-1][0]) + 1 if kept else 0
    connection.execute("DELETE FROM exchanges WHERE session = ? AND number >= ?", (session, number))
    row = (session, number, _digest(question), digest)
    connection.execute("INSERT INTO exchanges VALUES (?, ?, ?, ?)", row)
    return number


def _still_said(known: Sequence[str], asked: Sequence[str], question: str) -> int:
    """How many of the known questions, from the first, the session still has.

    The history may have grown behind the question already, and its beginning may be gone by a compaction: what counts
    is the question asked before this one. All of them where that one is not known.
    """
    place = next((place for place in reversed(range(len(asked))) if asked[place] == question), None)
    if place is None:
        return len(known)
    if place == 0:
        return 0
    before = asked[place - 1]
    return next((number + 1 for number in reversed(range(len(known))) if known[number] == before), len(known))


def _digest(*parts: str) -> str:
    text = "\x00".join(parts).encode("utf-8", "surrogatepass")
    return hashlib.sha256(text).hexdigest()[:32]
