"""SQLite files that their program may be writing: opened read-only, read in short steps. Does I/O."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from producers.transcripts.port import Sample, Unreadable

BUSY_SECONDS = 10.0
"""A writer holds its lock for milliseconds; a checkpoint at the close of a large database for seconds."""
DAMAGE = (sqlite3.DatabaseError, UnicodeDecodeError)
"""What a query raises on a damaged file; the second where the message would quote damaged names."""
_MAGIC = b"SQLite format 3\x00"


def is_database(sample: Sample) -> bool:
    return sample.head.startswith(_MAGIC)


@contextmanager
def opened(path: Path) -> Iterator[sqlite3.Connection]:
    """A read-only connection without transactions of its own; what SQLite refuses becomes `Unreadable`."""
    with path.open("rb") as file:  # what the file system refuses is its own error
        if file.read(len(_MAGIC)) != _MAGIC:
            raise Unreadable(_NO_DATABASE)
    try:
        with closing(_connect(path)) as connection:
            yield connection
    except (*DAMAGE, sqlite3.Error, OverflowError) as error:
        if is_busy(error):
            raise Unreadable(f"the database was locked for {BUSY_SECONDS:.0f} seconds; try again later") from None
        raise Unreadable(_DAMAGED) from None


def is_busy(error: Exception) -> bool:
    """Whether a writer kept SQLite from an answer; every other error of a read means damage."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def first_answer(connection: sqlite3.Connection, values: Sequence[Any], *queries: str) -> list[tuple[Any, ...]]:
    """Of the first query that meets no damage; they ask the same in ways that touch different pages of the file."""
    for query in queries[:-1]:
        try:
            return connection.execute(query, values).fetchall()
        except DAMAGE as error:
            if is_busy(error):
                raise
    return connection.execute(queries[-1], values).fetchall()


def columns(connection: sqlite3.Connection, table: str) -> frozenset[str]:
    """The table's columns; none where it does not exist."""
    return frozenset(str(row[0]) for row in connection.execute("SELECT name FROM pragma_table_info(?)", (table,)))


def tables_of(path: Path) -> dict[str, frozenset[str]]:
    """Each table's columns; nothing where that cannot be read. For detection, so it never raises."""
    try:
        with opened(path) as connection:
            names = [str(row[0]) for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
            return {name: columns(connection, name) for name in names}
    except (Unreadable, OSError, ValueError):
        return {}


def as_text(value: Any) -> str:
    """A value of any column as text."""
    if value is None:
        return ""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


_NO_DATABASE = "is no SQLite database; name the database itself, or leave out --format: its content tells the format"
_DAMAGED = "the database is damaged or not whole; recover it (`sqlite3 FILE .recover`) and import the result"


def _connect(path: Path) -> sqlite3.Connection:
    uri = path.resolve().as_uri() + "?mode=ro"
    connection = sqlite3.connect(uri, uri=True, timeout=BUSY_SECONDS, isolation_level=None)
    try:
        connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchall()
    except sqlite3.OperationalError:
        connection.close()
        if _may_be_written(path):
            raise
        # A WAL database needs an index beside it, which cannot be made in this folder; so nobody can be writing it.
        connection = sqlite3.connect(uri + "&immutable=1", uri=True, isolation_level=None)
    connection.text_factory = lambda data: data.decode("utf-8", "replace")
    return connection


def _may_be_written(path: Path) -> bool:
    """Whether a program has the database open, or left a log that is not yet in it."""
    log = path.with_name(path.name + "-wal")
    return log.exists() and log.stat().st_size > 0
