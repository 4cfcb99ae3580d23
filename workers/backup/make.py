"""Takes a backup while the system runs. Does I/O on everything.

    on the way → [what came since, a snapshot of the catalog, the tables' versions] → catalog → vectors → manifest

Nothing is stored during the step in brackets, which is short. Compaction and erasure, which delete files, wait until
the end.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from sqlalchemy.engine import Connection

from producers.connection import connect
from producers.errors import StreamUnavailable, UsageError
from producers.settings import LANES, Settings
from workers.backup import catalog_copy, on_the_way
from workers.backup.manifest import (
    FORMAT,
    CopiedSpace,
    CopiedStream,
    Manifest,
    OnProgress,
    OnTheWay,
    describe_file,
    program,
    sync_path,
    write_manifest,
)
from workers.backup.partial import partial_folder
from workers.backup.vector_copy import VectorSource
from workers.maintenance.erasure_proof import searched_folders
from workers.maintenance.redis_erasure import never_ran
from workers.stores.catalog import Catalog
from workers.stores.engine import HEAD


@dataclass(frozen=True)
class Backup:
    """A backup that was taken."""

    folder: Path
    manifest: Manifest
    seconds: float
    problem: str | None
    """What is not in it, and why."""


@dataclass(frozen=True)
class _Moment:
    """What belongs together, as of one moment."""

    on_the_way: OnTheWay
    snapshot: Connection
    tables: list[tuple[CopiedSpace, int | None]]
    """Each space with its table's version; None: it has no table."""
    held_ms: float
    problem: str | None


def make_backup(settings: Settings, folder: Path, on_progress: OnProgress = lambda *_: None) -> Backup:
    """Copy everything into `folder`, which must not exist or be empty; a copy that is not whole never has that name.

    Raises `UsageError` for a folder in use or within a store's, `NotReady` where there is nothing to copy,
    `StoreUnavailable` when a store cannot be read or the copy not written. A Redis that is away leaves a problem in
    what is returned.
    """
    started = time.monotonic()
    folder = folder.expanduser().absolute()
    _check_apart(folder, settings)
    catalog_copy.check_tools(settings.catalog_location)
    with ExitStack() as held:
        catalog = held.enter_context(closing(Catalog.open(settings.catalog_location)))
        partial = held.enter_context(partial_folder(folder))
        on_progress("waiting for maintenance", 0, 1)
        held.enter_context(catalog.locks.maintaining())
        vectors = VectorSource(settings.vectors_location)
        moment = _look(settings, catalog, vectors, partial, held, on_progress)
        turns, chunks, pending = catalog_copy.counts_of(moment.snapshot)
        name = catalog_copy.copy_catalog(
            moment.snapshot, partial, lambda done, total: on_progress("copying the catalog", done, total)
        )
        spaces = [_copy_vectors(vectors, *table, partial, on_progress) for table in moment.tables]
        manifest = Manifest(
            format=FORMAT,
            program=program(),
            schema_version=HEAD,
            created_at=datetime.now(UTC).isoformat(timespec="seconds"),
            catalog="sqlite" if moment.snapshot.dialect.name == "sqlite" else "postgresql",
            turns=turns,
            chunks=chunks,
            pending=pending,
            spaces=spaces,
            on_the_way=moment.on_the_way,
            held_ms=round(moment.held_ms, 1),
            files=[describe_file(partial, one) for one in _names(partial, name)],
        )
        write_manifest(partial, manifest)
    return Backup(folder, manifest, time.monotonic() - started, moment.problem)


def _check_apart(folder: Path, settings: Settings) -> None:
    """A forget is proven when no file of the stores holds a byte of it; a backup among them would hold it for good."""
    for searched in searched_folders(settings):
        if folder.resolve().is_relative_to(searched.resolve()):
            raise UsageError(
                f"backup {folder}: it is inside {searched}, where the stores are, so that no forget could be proven "
                "from then on: name a folder elsewhere"
            )


def _look(
    settings: Settings,
    catalog: Catalog,
    vectors: VectorSource,
    partial: Path,
    held: ExitStack,
    on_progress: OnProgress,
) -> _Moment:
    """Everything that has to be of one moment; `held` keeps the snapshot open."""
    problem = None
    spool = held.enter_context(closing(on_the_way.SpoolCopy(settings, partial / on_the_way.SPOOL_FILE)))
    redis_copy = held.enter_context(
        closing(on_the_way.RedisCopy(held.enter_context(connect(settings)), settings, partial))
    )
    on_progress("copying the streams", 0, 1)
    for stored in catalog.spaces.written():
        vectors.version(stored.space)  # opens the table, which takes longer than to look at it again
    with_redis = not never_ran(settings)
    try:
        if with_redis:
            redis_copy.first_look()
    except StreamUnavailable as error:
        problem, with_redis = _without_redis(error), False
    begun = time.monotonic()
    with catalog.locks.erasing():
        way = None
        try:
            way = redis_copy.second_look(spool) if with_redis else None
        except StreamUnavailable as error:
            problem = _without_redis(error)
        if way is None:
            spool.read()
            way = _spool_alone(spool, known=problem is None)
        snapshot = held.enter_context(catalog.snapshot())
        tables = [(one, vectors.version(one.space)) for one in catalog_copy.spaces_of(snapshot)]
    milliseconds = (time.monotonic() - begun) * 1000
    redis_copy.close()
    spool.close()
    return _Moment(way, snapshot, tables, milliseconds, problem)


def _spool_alone(spool: on_the_way.SpoolCopy, *, known: bool) -> OnTheWay:
    """Without Redis; `known`: there never was one, so that nothing can be on its streams."""
    nothing = CopiedStream(entries=0, last_id=on_the_way.NOTHING)
    return OnTheWay(
        streams=dict.fromkeys(LANES, nothing) if known else None,
        dead=nothing if known else None,
        spooled=spool.unsent({}),
        spool_sent={},
    )


def _without_redis(error: StreamUnavailable) -> str:
    return f"turns that wait on the streams, and dead letters, are not in this backup: {error}; then take another"


def _copy_vectors(
    vectors: VectorSource, space: CopiedSpace, table_version: int | None, partial: Path, on_progress: OnProgress
) -> CopiedSpace:
    if table_version is None:
        return space
    rows = vectors.copy(
        space.space, table_version, partial, lambda done, total: on_progress("copying the vectors", done, total)
    )
    return space.model_copy(update={"rows": rows})


def _names(partial: Path, catalog: str) -> Iterator[str]:
    """Every file that was copied, in the order of their folders, whose names go onto the disk as well."""
    yield catalog
    for folder in ("streams", "vectors"):
        if (partial / folder).is_dir():
            sync_path(partial / folder)
            yield from (f"{folder}/{path.name}" for path in sorted((partial / folder).iterdir()))
