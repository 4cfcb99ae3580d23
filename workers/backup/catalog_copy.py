"""The catalog's part of a backup: a copy of one moment of it, and the copy put in an empty place. Does I/O.

SQLite is copied page by page inside a read transaction, which writers neither wait for nor disturb; PostgreSQL's own
`pg_dump` copies from an exported snapshot, and `pg_restore` puts it back in one transaction.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import URL, Connection

from producers.errors import BadBackup, NotReady, StoreUnavailable
from workers.backup.manifest import CopiedSpace, private_file, sync, sync_path
from workers.stores.engine import HEAD, mapped_errors, shown_url, url_of
from workers.stores.spaces import WRITTEN_STATES
from workers.stores.tables import METADATA, PENDING, chunks, spaces, turns
from workers.supervision.process import log_tail, spawn

FILES = {"sqlite": "catalog.db", "postgresql": "catalog.dump"}
"""The copy's name by the kind of database."""
VERSION_TABLE = "alembic_version"
PAGES_A_STEP = 4096
"""Of SQLite's, between two looks at the progress: 16 MiB."""


def kind_of(location: str | Path) -> str:
    """`sqlite` or `postgresql`."""
    return url_of(location).get_backend_name()


def check_tools(location: str | Path) -> None:
    """Raises `NotReady` when PostgreSQL's programs are needed and not there."""
    if kind_of(location) == "postgresql":
        for name in ("pg_dump", "pg_restore"):
            _tool(name)


def spaces_of(connection: Connection) -> list[CopiedSpace]:
    """The spaces that turns are written to in a snapshot, oldest first, without their rows."""
    columns = [spaces.c[name] for name in CopiedSpace.model_fields if name != "rows"]
    query = sa.select(*columns).where(spaces.c.state.in_(WRITTEN_STATES))
    query = query.order_by(spaces.c.created_at_us, spaces.c.id)
    return [CopiedSpace(**row, rows=0) for row in connection.execute(query).mappings()]


def counts_of(connection: Connection) -> tuple[int, int, int]:
    """(turns, chunks, pending turns) that a snapshot sees."""
    queries = [
        sa.select(sa.func.count()).select_from(turns),
        sa.select(sa.func.count()).select_from(chunks),
        sa.select(sa.func.count()).where(turns.c.state == PENDING),
    ]
    counted = [int(connection.execute(query).scalar_one()) for query in queries]
    return counted[0], counted[1], counted[2]


def copy_catalog(connection: Connection, folder: Path, on_progress: Callable[[int, int], None]) -> str:
    """Write what the snapshot sees into `folder`; returns the file's name. Raises `StoreUnavailable`."""
    kind = connection.dialect.name
    path = folder / FILES[kind]
    with private_file(path):
        pass  # both writers below keep the mode of a file that is there
    if kind == "sqlite":
        _copy_sqlite(connection, path, on_progress)
    else:
        _dump(connection, path)
    sync_path(path)
    return path.name


def _copy_sqlite(connection: Connection, path: Path, on_progress: Callable[[int, int], None]) -> None:
    source: Any = connection.connection.driver_connection
    try:
        with closing(sqlite3.connect(path)) as copy:
            source.backup(
                copy, pages=PAGES_A_STEP, progress=lambda _status, left, total: on_progress(total - left, total)
            )
            copy.execute("PRAGMA journal_mode = DELETE")  # one file, without a log beside it
    except sqlite3.Error as error:
        raise StoreUnavailable(f"backup {path}: {error}; see that its disk has room, then take it again") from None


def _dump(connection: Connection, path: Path) -> None:
    exported = connection.execute(sa.text("SELECT pg_export_snapshot()")).scalar_one()
    tables = [f"--table={name}" for name in (*METADATA.tables, VERSION_TABLE)]
    options = ["--format=custom", "--no-owner", "--no-privileges", f"--snapshot={exported}", f"--file={path}", *tables]
    _run("pg_dump", options, connection.engine.url)


def nothing_at(location: str | Path) -> bool:
    """Whether there is no catalog. Raises `StoreUnavailable` when that cannot be seen."""
    url = url_of(location)
    if url.get_backend_name() == "sqlite":
        return not Path(url.database or "").exists()
    return not _our_tables(url)


def restore_catalog(folder: Path, name: str, location: str | Path) -> None:
    """Put the copy in its place, all of it or nothing. Raises `StoreUnavailable`."""
    url = url_of(location)
    if url.get_backend_name() == "postgresql":
        options = ["--single-transaction", "--exit-on-error", "--no-owner", "--no-privileges", str(folder / name)]
        _run("pg_restore", options, url)
        return
    place = Path(url.database or "")
    partial = _partial(place)
    try:
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with (folder / name).open("rb") as source, private_file(partial) as file:
            shutil.copyfileobj(source, file, 1 << 20)
            sync(file)
        partial.replace(place)
        sync_path(place.parent)
    except OSError as error:
        raise StoreUnavailable(f"catalog {place}: {error.strerror or error}") from None


def clear_catalog(location: str | Path) -> None:
    """Take away what an interrupted restore has put there."""
    url = url_of(location)
    if url.get_backend_name() == "sqlite":
        place = Path(url.database or "")
        for path in (_partial(place), *(place.with_name(place.name + end) for end in ("-wal", "-shm", ""))):
            path.unlink(missing_ok=True)
        return
    with _engine(url) as engine, mapped_errors(shown_url(url)), engine.begin() as connection:
        METADATA.drop_all(connection)
        connection.execute(sa.text(f"DROP TABLE IF EXISTS {VERSION_TABLE}"))


def check_schema(schema_version: str) -> None:
    """Raises `BadBackup` for a catalog of a later version than this program's; its numbers are ascending."""
    if not (schema_version.isdigit() and int(schema_version) <= int(HEAD)):
        raise BadBackup(f"the backup's catalog has schema version {schema_version}, this program reads up to {HEAD}")


def _our_tables(url: URL) -> set[str]:
    with _engine(url) as engine, mapped_errors(shown_url(url)), engine.connect() as connection:
        return set(sa.inspect(connection).get_table_names()) & {*METADATA.tables, VERSION_TABLE}


@contextmanager
def _engine(url: URL) -> Iterator[sa.Engine]:
    """An engine for one block, on a database of whatever schema."""
    engine = sa.create_engine(url)
    try:
        yield engine
    finally:
        engine.dispose()


def _partial(place: Path) -> Path:
    return place.with_name(f"{place.name}.partial")


def _tool(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise NotReady(
            f"{name} is not on PATH: a PostgreSQL catalog is copied with PostgreSQL's own programs, of the server's "
            "version or later (Debian, Ubuntu: apt install postgresql-client)"
        )
    return found


def _complaint(log: str, name: str) -> str:
    """The first error, and a detail of the program's own; what else follows may quote the rows it met."""
    lines = iter(log.splitlines())
    first = next((line for line in lines if "error:" in line), f"{name} ended with an error")
    detail = next(lines, "")
    return f"{first}; {detail.partition('detail: ')[2]}" if detail.startswith(f"{name}: detail: ") else first


def _run(name: str, options: Sequence[str], url: URL) -> None:
    """Run one of PostgreSQL's programs to its end. The password goes through the environment, where `ps` is blind."""
    target = url.set(drivername="postgresql", password=None).render_as_string()
    environment = dict(os.environ) | ({"PGPASSWORD": str(url.password)} if url.password else {})
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / f"{name}.log"
        process = spawn([_tool(name), *options, f"--dbname={target}"], log, environment)
        try:
            if process.wait() != 0:
                raise StoreUnavailable(f"catalog {shown_url(url)}: {_complaint(log_tail(log), name)}")
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
