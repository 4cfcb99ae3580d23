"""Checks a backup without restoring it: versions, files, checksums, and what is in them. Does file I/O; reads only."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from producers.errors import BadBackup
from workers.backup.catalog_copy import FILES, check_schema
from workers.backup.manifest import Manifest, OnProgress, check_files, read_manifest
from workers.backup.put_back import counted, expected
from workers.backup.vector_copy import file_name, rows_in


def check_backup(folder: Path, on_progress: OnProgress = lambda *_: None) -> Manifest:
    """The manifest of a sound backup. Raises `BadBackup` saying what is wrong with another."""
    folder = folder.expanduser().absolute()
    manifest = read_manifest(folder)
    check_schema(manifest.schema_version)
    check_files(folder, manifest, on_progress)
    _compare(folder, {"turns": manifest.turns, "chunks": manifest.chunks}, _in_catalog(folder, manifest))
    for one in manifest.spaces:
        name = file_name(one.space)
        rows = rows_in(folder / name) if manifest.file(name) else 0
        _compare(folder, {f"vectors of {one.embedder}": one.rows}, {f"vectors of {one.embedder}": rows})
    _compare(folder, expected(manifest.on_the_way), counted(folder, manifest.on_the_way))
    return manifest


def _in_catalog(folder: Path, manifest: Manifest) -> dict[str, int]:
    """Rows of a SQLite copy; PostgreSQL's form tells none before it is restored."""
    if manifest.catalog != "sqlite":
        return {"turns": manifest.turns, "chunks": manifest.chunks}
    path = folder / FILES[manifest.catalog]
    try:
        with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro&immutable=1", uri=True)) as copy:
            return {name: copy.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in ("turns", "chunks")}
    except sqlite3.Error as error:
        raise BadBackup(f"{path} is damaged: {error}; take another backup") from None


def _compare(folder: Path, wanted: dict[str, int], found: dict[str, int]) -> None:
    for name, count in wanted.items():
        if found.get(name, 0) != count:
            raise BadBackup(f"{folder} holds {found.get(name, 0):,} {name} instead of {count:,}: take another backup")
