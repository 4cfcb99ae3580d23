"""The spool: turn events kept on this machine while Redis is away. File I/O only; `encode` and `decode` are pure.

A file belongs to one process, one lane and one Redis, and is written by that process alone. Whoever holds its lock may
send it (`producers/stream.py` does), so what a dead process left needs no owner. A file: a header with the offset from
which events are not sent yet, then records of length, checksum and payload. The first record names the destination.
What a kill leaves at the end of a file fails the checksum: it is at most the append that had not returned.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import secrets
import struct
import time
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import NamedTuple

from producers.connection import safe_location
from producers.errors import SpoolFull, StreamUnavailable
from producers.logs import get_logger
from producers.settings import LANES, Lane, Settings

FOLDER = "spool"
SUFFIX = ".spool"
SEGMENT_BYTES = 4 << 20
"""A file that has grown to this is followed by a new one, so that disk space returns while a large spool is sent."""
_MAGIC = b"SRSPOOL1"
_HEADER = struct.Struct("<8sQ")
_FRAME = struct.Struct("<II")
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

log = get_logger(__name__)


class Record(NamedTuple):
    """A payload and the offset behind it."""

    payload: bytes
    end: int


@dataclass(frozen=True)
class Spooled:
    """What waits on this machine."""

    files: int = 0
    events: int = 0
    bytes: int = 0


def encode(payload: bytes) -> bytes:
    """One record. The checksum starts from the length, so that a run of zeros is no record."""
    return _FRAME.pack(len(payload), zlib.crc32(payload, len(payload))) + payload


def decode(data: bytes, start: int = 0) -> Iterator[Record]:
    """The records from `start` up to the first that is cut short or damaged."""
    while start + _FRAME.size <= len(data):
        length, checksum = _FRAME.unpack_from(data, start)
        payload = data[start + _FRAME.size : start + _FRAME.size + length]
        if not length or len(payload) < length or zlib.crc32(payload, length) != checksum:
            return
        start += _FRAME.size + length
        yield Record(payload, start)


class SpoolFile:
    """A spool file that is open and locked."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self._path = path
        self._descriptor = descriptor

    def write(self, offset: int, data: bytes) -> None:
        """Put `data` at `offset`, where the last whole record ends, and onto the disk; all of it or, on error, none."""
        try:
            os.ftruncate(self._descriptor, offset)
            written = 0
            while written < len(data):
                written += os.pwrite(self._descriptor, data[written:], offset + written)
            os.fsync(self._descriptor)
        except OSError:
            os.ftruncate(self._descriptor, offset)
            raise

    def unsent(self, sent: int = 0) -> list[Record]:
        """The events behind the header's offset, or behind `sent` where that is further."""
        data = self._read()
        return list(decode(data, max(sent, _first_unsent(data))))

    def advance(self, offset: int) -> None:
        """Remember that everything before `offset` is sent."""
        os.pwrite(self._descriptor, _HEADER.pack(_MAGIC, offset), 0)

    def remove(self) -> None:
        """Delete it; what is in it is sent, or was never whole."""
        data = self._read()
        whole = max((record.end for record in decode(data, _HEADER.size)), default=0)
        if len(data) > whole:
            log.warning("spool_tail_dropped", file=self._path.name, bytes=len(data) - whole)
        self._path.unlink(missing_ok=True)

    def _read(self) -> bytes:
        """All of it: a segment and one batch of events."""
        return os.pread(self._descriptor, os.fstat(self._descriptor).st_size, 0)


@contextmanager
def locked(path: Path, flags: int = 0) -> Iterator[SpoolFile | None]:
    """The file under its lock, which is held for one write or one round trip to Redis.

    None when it was sent and deleted in the meantime, or is another user's.
    """
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | flags, 0o600)
    except (FileNotFoundError, PermissionError):
        if flags & os.O_CREAT:
            raise
        yield None
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield SpoolFile(path, descriptor) if os.fstat(descriptor).st_nlink else None
    finally:
        fcntl.flock(descriptor, fcntl.LOCK_UN)  # closing is not enough when a fork has copied the descriptor
        os.close(descriptor)


class Spool:
    """What one process keeps for one lane of one Redis. Safe for several threads."""

    def __init__(self, settings: Settings, lane: Lane) -> None:
        self._folder = settings.data_dir / FOLDER
        self._bound = settings.spool_bytes
        self._destination = _destination(settings, lane)
        self._prefix = _prefix(self._destination)
        self._mutex = Lock()
        self._pid = 0
        self._owner = ""
        self._path = self._folder
        self._end = SEGMENT_BYTES  # so that the first append starts a file
        self._newest = 0

    @property
    def folder(self) -> Path:
        return self._folder

    def paths(self) -> list[Path]:
        """Files of this lane and Redis, of every process, oldest first."""
        return [path for path in _listed(self._folder) if path.name.startswith(self._prefix)]

    def own(self) -> Spooled:
        """What this object has spooled and nobody has sent yet."""
        return _measure([path for path in self.paths() if self._owner and path.name.endswith(self._owner)])

    def append(self, payloads: Sequence[bytes], why: str) -> None:
        """Keep `payloads`, all of them or none; when it returns they are on the disk.

        `why` they are not on the stream becomes part of an error. Raises `SpoolFull` at the bound or when the disk is
        full, and `StreamUnavailable` when the spool cannot be written for another reason.
        """
        data = b"".join(map(encode, payloads))
        held = sum(_size(path) for path in _listed(self._folder))
        if held + len(data) > self._bound:
            raise SpoolFull(
                f"{why}; and the spool in {self._folder} holds {held:,} bytes, spool_bytes is {self._bound:,}. What "
                "was accepted before is safe there and is sent when Redis takes it: start Redis and workers or raise "
                "spool_bytes, then append the rest again"
            )
        try:
            with self._mutex:
                self._write(data)
        except OSError as error:
            reason = f"{why}; and the spool in {self._folder} cannot be written: {error.strerror or error}"
            safe = "What was accepted before is safe there"
            if error.errno in _NO_ROOM:
                raise SpoolFull(f"{reason}. {safe}: free space or start Redis, then append the rest again") from None
            raise StreamUnavailable(f"{reason}. {safe}: set data_dir to a folder that can be written") from None

    def _write(self, data: bytes) -> None:
        """Behind what this process has spooled before, or at the start of a new file."""
        if self._pid != os.getpid():  # the first time, or in a fork, whose parent goes on with the file it had
            self._pid = os.getpid()
            self._owner = f"-{self._pid}-{secrets.token_hex(4)}{SUFFIX}"
            self._end = SEGMENT_BYTES
        if self._end < SEGMENT_BYTES:
            with locked(self._path) as file:
                if file is not None:
                    file.write(self._end, data)
                    self._end += len(data)
                    return
        while not self._start(data):
            pass

    def _start(self, data: bytes) -> bool:
        """Start a new file with `data`; False when a sender took the still empty file for a leftover."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._newest = max(self._newest + 1, time.time_ns())  # names sort by age, also when the clock is set back
        path = self._folder / f"{self._prefix}{self._newest:020d}{self._owner}"
        first = encode(json.dumps(self._destination).encode())
        whole = _HEADER.pack(_MAGIC, _HEADER.size + len(first)) + first + data
        with locked(path, os.O_CREAT | os.O_EXCL) as file:
            if file is None:
                return False
            try:
                file.write(0, whole)
                _sync_folder(self._folder)
                _sync_folder(self._folder.parent)
            except OSError:
                path.unlink(missing_ok=True)
                raise
        self._path, self._end = path, len(whole)
        return True


def spooled(settings: Settings) -> Spooled:
    """What waits in this data dir for the Redis of these settings, both lanes."""
    return _measure([path for lane in LANES for path in Spool(settings, lane).paths()])


def spooled_for_others(settings: Settings) -> dict[str, int]:
    """Events in this data dir for another Redis or key prefix, by its address as shown to people."""
    ours = tuple(_prefix(_destination(settings, lane)) for lane in LANES)
    counts: dict[str, int] = {}
    for path in _listed(settings.data_dir / FOLDER):
        data = b"" if path.name.startswith(ours) else _content(path)
        for first in list(decode(data, _HEADER.size))[:1]:
            address, prefix, _ = json.loads(first.payload)
            name = f"{address}, key prefix {prefix}"
            counts[name] = counts.get(name, 0) + len(list(decode(data, _first_unsent(data))))
    return counts


def _destination(settings: Settings, lane: Lane) -> tuple[str, str, str]:
    """Address without password, key prefix, lane: a turn must never reach another system that shares the data dir."""
    return ("embedded" if settings.redis_url is None else safe_location(settings), settings.key_prefix, lane)


def _prefix(destination: tuple[str, str, str]) -> str:
    return f"{destination[-1]}-{hashlib.sha256(json.dumps(destination).encode()).hexdigest()[:12]}-"


def _listed(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if path.suffix == SUFFIX)
    except (FileNotFoundError, NotADirectoryError, PermissionError):  # nothing was spooled, or it is another user's
        return []


def _measure(paths: Sequence[Path]) -> Spooled:
    """Without locks: a number that is a moment old is good enough for people."""
    files = [(data, _first_unsent(data)) for data in map(_content, paths) if data]
    return Spooled(
        files=len(files),
        events=sum(1 for data, start in files for _ in decode(data, start)),
        bytes=sum(len(data) - start for data, start in files),
    )


def _first_unsent(data: bytes) -> int:
    """The header's offset; behind the end when there is no header, that is, nothing was ever accepted."""
    if len(data) < _HEADER.size or not data.startswith(_MAGIC):
        return len(data)
    return int(_HEADER.unpack_from(data)[1])


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except (FileNotFoundError, PermissionError):
        return b""


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _sync_folder(folder: Path) -> None:
    """A new file's name is on the disk only when its folder is."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
