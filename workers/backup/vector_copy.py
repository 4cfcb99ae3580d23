"""The vectors' part of a backup: each table at one version, streamed into a file and back. Does I/O; bounded memory.

The file is Arrow's own (IPC), so it holds rows and no index: indexes are built where it is restored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from producers.errors import BadBackup, StoreUnavailable
from workers.backup.manifest import private_file, sync
from workers.stores.lance_connection import WRITER_CACHE, LanceConnection
from workers.stores.lance_schema import FACTS, TERMS, table_schema
from workers.stores.space import Space
from workers.stores.vectors import VectorStore

MAX_TABLES = 10_000
"""One a space."""
BATCH_ROWS = 2048
"""3 MiB of vectors at 384 dimensions."""

OnRows = Callable[[int, int], None]
"""Called with rows copied and rows in all."""


def file_name(space: Space) -> str:
    """The space's file in a backup."""
    return f"vectors/{space.id}.arrow"


class VectorSource:
    """The tables of one location, to be copied."""

    def __init__(self, location: str) -> None:
        self._lance = LanceConnection(location, WRITER_CACHE)

    def version(self, space: Space) -> int | None:
        """The newest version of a space's table; None where there is none."""
        found: int | None = self._lance.read(space, lambda table: int(table.version), None)
        return found

    def copy(self, space: Space, version: int, folder: Path, on_rows: OnRows) -> int:
        """Write the rows of that version into `folder`; returns how many. Raises `StoreUnavailable`."""

        def stream(table: Any) -> int:
            table.checkout(version)
            try:
                return _write(table, folder / file_name(space), on_rows)
            finally:
                table.checkout_latest()

        return self._lance.read(space, stream, 0)


def _write(table: Any, path: Path, on_rows: OnRows) -> int:
    import pyarrow as pa

    total, done = table.count_rows(), 0
    batches = table.search().select(table.schema.names).to_batches(batch_size=BATCH_ROWS)
    try:
        file = private_file(path)
        with file, pa.ipc.new_file(file, batches.schema) as writer:
            for batch in _from_lance(batches):
                writer.write_batch(batch)
                done += batch.num_rows
                on_rows(done, total)
            writer.close()
            sync(file)
    except OSError as error:  # LanceDB's own are wrapped, so this is the backup's disk
        raise StoreUnavailable(f"backup {path}: {error.strerror or error}; nothing of it is left there") from None
    return done


def _from_lance(batches: Any) -> Iterator[Any]:
    try:
        yield from batches
    except OSError as error:
        raise RuntimeError(str(error)) from error


def rows_in(path: Path) -> int:
    """Rows of a copied table. Raises `BadBackup`."""
    import pyarrow as pa

    try:
        with pa.memory_map(str(path)) as source:
            reader = pa.ipc.open_file(source)
            return sum(reader.get_batch(number).num_rows for number in range(reader.num_record_batches))
    except (pa.ArrowInvalid, OSError) as error:
        raise BadBackup(f"{path} is damaged: {str(error).splitlines()[0]}") from None


def tables_at(location: str) -> list[str]:
    """Names of the tables that are there; makes nothing. Raises `StoreUnavailable`."""
    if "://" not in location and not Path(location).exists():
        return []
    try:
        connection = LanceConnection(location).connect()
        return list(connection.list_tables(limit=MAX_TABLES).tables)
    except (RuntimeError, ValueError, OSError) as error:
        raise StoreUnavailable(f"vector store {location}: {str(error).splitlines()[0]}") from None


def restore_vectors(location: str, space: Space, path: Path, on_rows: OnRows) -> int:
    """Make the space's table of the file, ready for full-text search; returns its rows.

    Raises `BadBackup` for a file of another form, `StoreUnavailable` when LanceDB fails.
    """
    import pyarrow as pa

    total = rows_in(path)
    lance = LanceConnection(location, WRITER_CACHE)
    schema = table_schema(space.dimension)
    with pa.OSFile(str(path)) as source:  # read, not mapped: what is mapped stays in memory
        reader = pa.ipc.open_file(source)
        # Of an older version, before there were facts: reconcile fills them.
        older = FACTS not in reader.schema.names
        if not reader.schema.equals(schema.remove(schema.get_field_index(FACTS)) if older else schema):
            raise BadBackup(f"{path} has other columns than this program's vector table: reconcile fills it anew")

        def batches() -> Iterator[Any]:
            done = 0
            for number in range(reader.num_record_batches):
                batch = reader.get_batch(number)
                nothing = [pa.nulls(batch.num_rows, schema.field(FACTS).type)] if older else []
                yield pa.RecordBatch.from_arrays([*batch.columns, *nothing], schema=schema)
                done += batch.num_rows
                on_rows(done, total)

        stream = pa.RecordBatchReader.from_batches(schema, batches())
        lance.write(space, lambda table: table.add(stream), create=True)
    if total:
        VectorStore(location).build_index(space, TERMS, "full-text")
    return int(lance.read(space, lambda table: table.count_rows(), 0))


def drop_tables(location: str, names: Iterable[str]) -> None:
    """Take away the tables that an interrupted restore has made."""
    for name in set(names) & set(tables_at(location)):
        LanceConnection(location).connect().drop_table(name)
