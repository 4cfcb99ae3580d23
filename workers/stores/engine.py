"""Opens the catalog's database: SQLite in WAL mode or PostgreSQL, brought to the newest schema. Does I/O."""

from __future__ import annotations

import fcntl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy import event, exc
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.engine.url import URL, make_url

from producers.errors import NotReady, SettingsError, StoreUnavailable
from producers.settings import without_password
from workers.stores.sqlite_errors import FOLDER_ADVICE, advice
from workers.stores.tables import METADATA

BACKENDS = ("sqlite", "postgresql")
HEAD = "0005"
"""The schema revision this code reads and writes; the newest file in migrations/versions."""
BUSY_TIMEOUT_MS = 30_000
"""How long a SQLite writer waits for another; a write of one batch takes about 10 ms."""
_NO_TRANSACTION = "no_transaction"
"""Execution option for the SQLite statements that must stand outside of one."""
CHECKPOINT_POLL = 0.05
WRITE_LOCK = 0x5C09E
"""PostgreSQL advisory lock that makes catalog writers take turns, as SQLite's own lock does."""


def open_engine(location: str | Path, *, create: bool) -> Engine:
    """Connect and check the schema; with `create`, make or migrate it first. `location`: a URL or a SQLite file.

    Raises `SettingsError` for a URL that is none or of another database, `NotReady` when the catalog does not exist or
    is of another schema version, `StoreUnavailable` when it cannot be reached.
    """
    url = url_of(location)
    path = Path(url.database) if url.get_backend_name() == "sqlite" and url.database else None
    if path is not None and not path.exists():
        if not create:
            raise NotReady(
                f"no catalog at {path}: nothing has been stored there yet, or --data-dir names another folder"
            )
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreUnavailable(f"catalog folder {path.parent}: {error.strerror}{FOLDER_ADVICE}") from None
    try:
        engine = sa.create_engine(url, pool_pre_ping=path is None)
    except (exc.ArgumentError, ImportError) as error:
        raise SettingsError(f"setting catalog_url = {shown_url(url)}: {error}") from None
    if path is not None:
        event.listen(engine, "connect", _sqlite_pragmas)
        event.listen(engine, "begin", _sqlite_begin)
    with mapped_errors(shown_url(url)):
        if _revision(engine) != HEAD and create:
            _migrate(engine, path)
        found = _revision(engine)
    if found != HEAD:
        raise NotReady(
            f"the catalog has schema version {found or 'none'}, this program needs {HEAD}: "
            "start `scope-recall up` (or a worker) of this version once, which migrates it"
        )
    return engine


def shown_url(url: URL) -> str:
    """A catalog's URL as messages may show it."""
    return without_password(url.render_as_string())


def url_of(location: str | Path) -> URL:
    """The URL of a catalog; a path is a SQLite file's. Raises `SettingsError`."""
    if isinstance(location, Path):
        return URL.create("sqlite", database=str(location))
    try:
        url = make_url(location)
    except (exc.ArgumentError, ValueError) as error:
        raise SettingsError(f"setting catalog_url = {without_password(location)!r}: {_first_line(error)}") from None
    if url.get_backend_name() not in BACKENDS:
        raise SettingsError(
            f"setting catalog_url = {shown_url(url)}: the catalog is one of {', '.join(BACKENDS)}, "
            "such as postgresql+psycopg://user@host/memory"
        )
    return url


@contextmanager
def reading(engine: Engine) -> Iterator[Connection]:
    """A connection for reading; it holds nobody up."""
    with mapped_errors(shown_url(engine.url)), engine.connect() as connection:
        yield connection


@contextmanager
def write_transaction(engine: Engine) -> Iterator[Connection]:
    """One writer at a time, from its first read on: what it read cannot change before it commits."""
    with mapped_errors(shown_url(engine.url)), engine.connect() as connection:
        connection = connection.execution_options(writes=True)
        with connection.begin():
            if engine.dialect.name == "postgresql":
                connection.execute(sa.select(sa.func.pg_advisory_xact_lock(WRITE_LOCK)))
            yield connection


@contextmanager
def snapshot(engine: Engine) -> Iterator[Connection]:
    """A connection that reads the database as it is now, however long the block takes; it holds nobody up."""
    with mapped_errors(shown_url(engine.url)), engine.connect() as connection:
        if engine.dialect.name == "postgresql":
            connection = connection.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
        with connection.begin():
            connection.execute(sa.text("SELECT version_num FROM alembic_version"))  # the first read is what it sees
            yield connection


def scrub(engine: Engine) -> None:
    """Rewrite the database without what was deleted, and its write-ahead log too.

    PostgreSQL's log and backups are its administrator's. Raises `StoreUnavailable`, also when readers stay too long.
    """
    where = shown_url(engine.url)
    with mapped_errors(where), engine.connect() as connection:
        if engine.dialect.name == "postgresql":
            connection = connection.execution_options(isolation_level="AUTOCOMMIT")
            for table in METADATA.sorted_tables:
                connection.exec_driver_sql(f"VACUUM (FULL) {table.name}")
            return
        connection = connection.execution_options(**{_NO_TRANSACTION: True})
        connection.exec_driver_sql("VACUUM")
        deadline = time.monotonic() + BUSY_TIMEOUT_MS / 1000
        while connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)").one()[0]:
            if time.monotonic() > deadline:
                raise StoreUnavailable(f"catalog {where}: a reader kept its write-ahead log busy; try again")
            time.sleep(CHECKPOINT_POLL)


@contextmanager
def mapped_errors(where: str) -> Iterator[None]:
    """Map the driver's errors onto ours, naming the catalog; a statement and its values never reach a message."""
    try:
        yield
    except (exc.OperationalError, exc.InterfaceError, exc.TimeoutError) as error:
        raise _unavailable(where, error) from None
    except exc.DatabaseError as error:
        # SQLite's "malformed" and "not a database" come as the base class; its children are mistakes of this code.
        if type(error) is not exc.DatabaseError:
            raise
        raise _unavailable(where, error) from None


def _unavailable(where: str, error: exc.SQLAlchemyError) -> StoreUnavailable:
    cause = getattr(error, "orig", None) or error
    return StoreUnavailable(f"catalog {where}: {_first_line(cause)}{advice(cause)}")


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _sqlite_pragmas(connection: Any, _record: object) -> None:
    # pysqlite would open its own, deferred transactions; `_sqlite_begin` opens ours.
    connection.isolation_level = None
    cursor = connection.cursor()
    cursor.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
    cursor.execute("PRAGMA journal_mode = WAL")
    # The stream entry is deleted once the catalog has committed, so the commit must be on disk.
    cursor.execute("PRAGMA synchronous = FULL")
    cursor.execute("PRAGMA foreign_keys = ON")
    cursor.execute("PRAGMA secure_delete = ON")
    cursor.close()


def _sqlite_begin(connection: Connection) -> None:
    if connection.get_execution_options().get(_NO_TRANSACTION):
        return
    # IMMEDIATE takes the write lock at once and waits for it; an upgrade from a read could fail without waiting.
    writes = connection.get_execution_options().get("writes")
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _revision(engine: Engine) -> str | None:
    with engine.connect() as connection:
        if not sa.inspect(connection).has_table("alembic_version"):
            return None
        return connection.execute(sa.text("SELECT version_num FROM alembic_version")).scalar()


def _migrate(engine: Engine, path: Path | None) -> None:
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    with _migration_lock(engine, path), engine.connect() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "head")
        connection.commit()


@contextmanager
def _migration_lock(engine: Engine, path: Path | None) -> Iterator[None]:
    """Processes that start together migrate one after the other."""
    if path is not None:
        try:
            file = path.with_suffix(".lock").open("w")
        except OSError as error:
            raise StoreUnavailable(f"catalog {path}: {error.filename}: {error.strerror}{FOLDER_ADVICE}") from None
        with file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield
        return
    with engine.connect() as connection:
        connection.execute(sa.select(sa.func.pg_advisory_lock(WRITE_LOCK)))
        try:
            yield
        finally:
            connection.execute(sa.select(sa.func.pg_advisory_unlock(WRITE_LOCK)))
