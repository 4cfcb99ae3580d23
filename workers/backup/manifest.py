"""What a backup says of itself: its files with their checksums, what is in them, and who wrote it. Does file I/O.

The manifest is written last and carries a checksum of itself, so that a folder without a sound one is no backup.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from producers.errors import BadBackup
from producers.settings import Lane
from workers.disk import shown_size
from workers.stores.space import Space

FORMAT = 1
"""Raised when an older program could not read what this one writes."""
NAME = "manifest.json"
CHECKSUM = "checksum"
READ_BYTES = 1 << 20
_FILE_NAME = re.compile(r"[a-z]+/[a-z0-9_]+\.[a-z]+|catalog\.[a-z]+")
"""A manifest names files of its own folder only."""

OnProgress = Callable[[str, int, int], None]
"""Called with a step and how much of how much of it is done."""


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True)


class CopiedFile(_Part):
    """One file of the backup."""

    name: str
    bytes: int
    sha256: str


class CopiedSpace(_Part):
    """An embedding space and its rows."""

    embedder: str
    dimension: int
    chunk_tokens: int
    chunk_overlap: int
    state: str
    rows: int

    @property
    def space(self) -> Space:
        return Space(self.embedder, self.dimension, self.chunk_tokens, self.chunk_overlap)


class CopiedStream(_Part):
    """A Redis stream: its entries, and the last id it had given."""

    entries: int
    last_id: str


class OnTheWay(_Part):
    """Turns that were accepted and not yet stored."""

    streams: dict[Lane, CopiedStream] | None
    """None: Redis was away, and what it holds is not in this backup."""
    dead: CopiedStream | None
    spooled: dict[Lane, int]
    """Events that were in the data dir's spool and not on a stream."""
    spool_sent: dict[str, int]
    """By spool file: up to which offset it was on a stream by then."""


class Manifest(_Part):
    """The whole backup. Sizes in bytes."""

    format: int
    program: str
    schema_version: str
    """Of the catalog."""
    created_at: str
    """ISO 8601."""
    catalog: Literal["sqlite", "postgresql"]
    turns: int
    chunks: int
    pending: int
    spaces: list[CopiedSpace]
    on_the_way: OnTheWay
    held_ms: float
    """How long no batch could begin to be stored."""
    files: list[CopiedFile]

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)

    def file(self, name: str) -> CopiedFile | None:
        return next((file for file in self.files if file.name == name), None)


def program() -> str:
    """This program's version."""
    return version("scope-recall-hermes")


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write it to the disk, with its checksum."""
    body = manifest.model_dump(mode="json")
    path = folder / NAME
    with private_file(path) as file:
        file.write(json.dumps({**body, CHECKSUM: _digest(body)}, indent=1).encode())
        sync(file)


def read_manifest(folder: Path) -> Manifest:
    """Raises `BadBackup` when `folder` is no backup, or one that this program cannot read."""
    path = folder / NAME
    try:
        body = json.loads(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        what = "an interrupted backup, which was never finished" if folder.name.endswith(".partial") else "not a backup"
        raise BadBackup(f"{folder} is {what}: it has no {NAME}") from None
    except OSError as error:
        raise BadBackup(f"{path} cannot be read: {error.strerror or error}") from None
    except ValueError:
        raise BadBackup(f"{path} is damaged: take another backup") from None
    made_with = body.get("format") if isinstance(body, dict) else None
    if isinstance(made_with, int) and made_with > FORMAT:
        raise BadBackup(
            f"{folder} has format {made_with}, this program ({program()}) reads up to {FORMAT}: "
            f"use version {body.get('program', 'unknown')} or later"
        )
    try:
        checksum = body.pop(CHECKSUM)
        manifest = Manifest.model_validate_json(json.dumps(body))
    except (ValidationError, KeyError, TypeError, AttributeError):
        raise BadBackup(f"{path} is damaged: take another backup") from None
    if checksum != _digest(body) or not all(_FILE_NAME.fullmatch(file.name) for file in manifest.files):
        raise BadBackup(f"{path} is damaged: take another backup")
    return manifest


def check_files(folder: Path, manifest: Manifest, on_progress: OnProgress) -> None:
    """Compare every file with its size and checksum. Raises `BadBackup` naming the first that differs."""
    done = 0

    def report(read: int) -> None:
        on_progress("checking", done + read, manifest.bytes)

    for wanted in manifest.files:
        path = folder / wanted.name
        try:
            size = path.stat().st_size
            if size != wanted.bytes:
                raise BadBackup(f"{path} is damaged: {size:,} bytes of {wanted.bytes:,}; take another backup")
            found = describe_file(folder, wanted.name, report)
        except FileNotFoundError:
            raise BadBackup(f"{path} is missing: the backup is not whole; take another") from None
        except OSError as error:
            raise BadBackup(f"{path} cannot be read: {error.strerror or error}") from None
        if found != wanted:
            raise BadBackup(f"{path} is damaged: its SHA-256 is not the one it was written with; take another backup")
        done += wanted.bytes


def describe_file(folder: Path, name: str, on_read: Callable[[int], None] = lambda _: None) -> CopiedFile:
    """A file's size and checksum, read from the disk."""
    digest = hashlib.sha256()
    read = 0
    with (folder / name).open("rb") as file:
        while data := file.read(READ_BYTES):
            digest.update(data)
            read += len(data)
            on_read(read)
    return CopiedFile(name=name, bytes=read, sha256=digest.hexdigest())


def private_file(path: Path) -> Any:
    """A new file, open for writing bytes, that only its user can read."""
    path.parent.mkdir(mode=0o700, exist_ok=True)
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "wb")


def sync(file: Any) -> None:
    """Onto the disk."""
    file.flush()
    os.fsync(file.fileno())


def sync_path(path: Path) -> None:
    """A file that others wrote, or a folder's names, onto the disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def summary(manifest: Manifest) -> list[tuple[str, str]]:
    """What is in it, as people read it: (what, how much)."""
    way = manifest.on_the_way
    rows = [("turns", f"{manifest.turns:,}"), ("chunks", f"{manifest.chunks:,}")]
    rows += [(f"vectors of {one.embedder} ({one.state})", f"{one.rows:,}") for one in manifest.spaces]
    if way.streams is None or way.dead is None:
        rows.append(("on the streams, dead letters", "not in it"))
    else:
        rows += [(f"on the {lane} stream", f"{one.entries:,}") for lane, one in way.streams.items()]
        rows.append(("dead letters", f"{way.dead.entries:,}"))
    rows.append(("spooled", f"{sum(way.spooled.values()):,}"))
    return [*rows, ("size", shown_size(manifest.bytes))]


def _digest(body: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
