"""Restores a backup into an empty place, and checks what is there then. Does I/O on everything.

    check → mark the data dir → vectors and their full-text index → streams → catalog → compare → take the mark away

While the mark is there no other command works on the data dir. A restore that fails takes away what it has made; one
that is killed leaves the mark, and the next restore takes it away and starts anew.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from producers.connection import connect, safe_location
from producers.errors import BadBackup, NotReady, ScopeRecallError, UsageError
from producers.settings import Settings
from workers.backup import catalog_copy
from workers.backup.check import check_backup
from workers.backup.manifest import Manifest, OnProgress, private_file, sync, sync_path
from workers.backup.put_back import RedisPlace
from workers.backup.vector_copy import drop_tables, file_name, restore_vectors, tables_at
from workers.disk import free_bytes, shown_size
from workers.stores.catalog import Catalog
from workers.stores.engine import shown_url, url_of
from workers.supervision.redis_server import embedded_redis
from workers.supervision.tree_state import UpLock


@dataclass(frozen=True)
class Restored:
    """A backup that was restored."""

    manifest: Manifest
    seconds: float


def restore_backup(settings: Settings, folder: Path, on_progress: OnProgress = lambda *_: None) -> Restored:
    """Restore the backup in `folder` to where the settings keep things, which must be empty.

    Raises `BadBackup` for one that is damaged or of a later version, `UsageError` naming what is not empty or in use,
    `StoreUnavailable` or `StreamUnavailable` when something fails; nothing is left of the attempt then.
    """
    started = time.monotonic()
    folder = folder.expanduser().absolute()
    manifest = check_backup(folder, on_progress)
    _check_kind(manifest, settings)
    with ExitStack() as held:
        held.enter_context(embedded_redis(settings) if settings.redis_url is None else UpLock(settings.data_dir))
        place = RedisPlace(held.enter_context(connect(settings)), settings)
        restoring = _Restoring(settings, folder, manifest, place, on_progress)
        restoring.prepare()
        restoring.run()
    return Restored(manifest, time.monotonic() - started)


def _check_kind(manifest: Manifest, settings: Settings) -> None:
    kind = catalog_copy.kind_of(settings.catalog_location)
    if kind != manifest.catalog:
        raise UsageError(
            f"the backup's catalog is a {manifest.catalog} database and the setting catalog_url names a {kind} one: "
            + ("leave it unset" if manifest.catalog == "sqlite" else "set it to an empty PostgreSQL database")
        )
    catalog_copy.check_tools(settings.catalog_location)


class _Restoring:
    """One attempt, by whoever has the data dir's lock."""

    def __init__(
        self, settings: Settings, folder: Path, manifest: Manifest, place: RedisPlace, on_progress: OnProgress
    ) -> None:
        self._settings = settings
        self._folder = folder
        self._manifest = manifest
        self._place = place
        self._on_progress = on_progress
        self._spaces = [one.space for one in manifest.spaces]
        self._tables = [space.id for space in self._spaces]

    def prepare(self) -> None:
        """See that everything is empty, also of an interrupted attempt, and mark the data dir."""
        mark = self._settings.restore_mark
        if mark.exists():
            self._clear_marked(mark)
        self._check_empty()
        self._check_room()
        try:
            with private_file(mark) as file:
                file.write(json.dumps({**self._places(), "tables": self._tables}).encode())
                sync(file)
            sync_path(mark.parent)
        except OSError as error:
            raise NotReady(f"data dir {self._settings.data_dir}: {error.strerror or error}") from None

    def run(self) -> None:
        """Fill everything, compare it with the manifest and take the mark away; on an error, take away all of it."""
        try:
            self._fill()
            self._compare()
        except BaseException:
            with suppress(ScopeRecallError, OSError, RuntimeError):  # then the mark stays, and the next attempt does it
                self._clear(self._tables)
                self._settings.restore_mark.unlink()
            raise
        self._settings.restore_mark.unlink()
        sync_path(self._settings.data_dir)

    def _fill(self) -> None:
        for space in self._spaces:
            path = self._folder / file_name(space)
            if self._manifest.file(file_name(space)):
                restore_vectors(
                    self._settings.vectors_location,
                    space,
                    path,
                    lambda done, total: self._on_progress("restoring the vectors", done, total),
                )
        self._place.clear()
        self._place.put_back(
            self._folder,
            self._manifest.on_the_way,
            lambda done, total: self._on_progress("restoring the streams", done, total),
        )
        self._on_progress("restoring the catalog", 0, 1)
        name = catalog_copy.FILES[self._manifest.catalog]
        catalog_copy.restore_catalog(self._folder, name, self._settings.catalog_location)

    def _compare(self) -> None:
        self._on_progress("comparing", 0, 1)
        opened = Catalog.open(self._settings.catalog_location, create=True)  # migrates an older one
        with closing(opened) as catalog:
            with catalog.snapshot() as snapshot:
                turns, chunks, _ = catalog_copy.counts_of(snapshot)
            catalog.runs.interrupt_all("the system was restored from a backup that was taken while it ran")
        if (turns, chunks) != (self._manifest.turns, self._manifest.chunks):
            raise BadBackup(
                f"the restored catalog has {turns:,} turns and {chunks:,} chunks instead of "
                f"{self._manifest.turns:,} and {self._manifest.chunks:,}: take another backup"
            )
        self._place.check(self._manifest.on_the_way)

    def _check_empty(self) -> None:
        settings = self._settings
        if not catalog_copy.nothing_at(settings.catalog_location):
            raise UsageError(f"there is a catalog at {_shown(settings.catalog_location)}: {_ELSEWHERE}")
        if tables := tables_at(settings.vectors_location):
            raise UsageError(f"there are vectors at {settings.vectors_location} (table {tables[0]}): {_ELSEWHERE}")
        if stream := self._place.taken():
            raise UsageError(f"stream {stream} of the Redis at {safe_location(settings)} is not empty: {_ELSEWHERE}")

    def _check_room(self) -> None:
        free = free_bytes(self._settings.data_dir)
        if free is not None and free < self._manifest.bytes:
            raise NotReady(
                f"data dir {self._settings.data_dir}: its disk has {shown_size(free)} and the backup "
                f"{shown_size(self._manifest.bytes)}; free space there, or choose another --data-dir"
            )

    def _clear(self, tables: Iterable[str]) -> None:
        catalog_copy.clear_catalog(self._settings.catalog_location)
        drop_tables(self._settings.vectors_location, tables)
        self._place.clear()

    def _clear_marked(self, mark: Path) -> None:
        """What an interrupted attempt has made is taken away where it was made, or not at all."""
        try:
            begun: dict[str, Any] = json.loads(mark.read_bytes())
        except ValueError:  # killed while the mark was written, so there is nothing else
            return
        for name, value in self._places().items():
            if begun.get(name) != value:
                raise UsageError(
                    f"the restore that was interrupted here had {name} {begun.get(name)}, this one has {value}: "
                    "restore with the same settings again"
                )
        self._clear(begun["tables"])

    def _places(self) -> dict[str, str]:
        return {
            "catalog_url": _shown(self._settings.catalog_location),
            "vectors_uri": self._settings.vectors_location,
            "redis_url": safe_location(self._settings),
            "key_prefix": self._settings.key_prefix,
        }


_ELSEWHERE = "a backup is restored into an empty place; choose another"


def _shown(location: str | Path) -> str:
    return str(location) if isinstance(location, Path) else shown_url(url_of(location))
