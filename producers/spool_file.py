"""A spool's file: its form, its lock, and what is done with one. File I/O; `encode`, `decode` and `events` are pure.

A header with the offset from which events are not sent yet, then records of length, checksum, moment and payload. The
first record names the destination. What a kill leaves at the end of a file fails the checksum: it is at most the
append that had not returned.
"""

from __future__ import annotations

import fcntl
import os
import struct
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from producers.logs import get_logger

MAGIC = b"SRSPOOL1"
HEADER = struct.Struct("<8sQ")
_FRAME = struct.Struct("<II")
_MOMENT = struct.Struct("<Q")
ERASED = 2**64 - 1
"""The moment of a record whose event was forgotten: zeros stand where it was, so that no offset changes."""

log = get_logger(__name__)


class Record(NamedTuple):
    """An event's JSON, when it was accepted, and the offset behind it."""

    payload: bytes
    accepted_ms: int
    """Milliseconds since 1970."""
    end: int


def encode(payload: bytes, accepted_ms: int = 0) -> bytes:
    """One record. The checksum starts from the length, so that a run of zeros is no record."""
    body = _MOMENT.pack(accepted_ms) + payload
    return _FRAME.pack(len(body), zlib.crc32(body, len(body))) + body


def decode(data: bytes, start: int = 0) -> Iterator[Record]:
    """The records from `start` up to the first that is cut short or damaged."""
    while start + _FRAME.size <= len(data):
        length, checksum = _FRAME.unpack_from(data, start)
        body = data[start + _FRAME.size : start + _FRAME.size + length]
        if length <= _MOMENT.size or len(body) < length or zlib.crc32(body, length) != checksum:
            return
        start += _FRAME.size + length
        yield Record(body[_MOMENT.size :], _MOMENT.unpack_from(body)[0], start)


def events(data: bytes, start: int) -> Iterator[Record]:
    """The records from `start` that hold an event."""
    return (record for record in decode(data, start) if record.accepted_ms != ERASED)


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
        return list(events(data, max(sent, first_unsent(data))))

    def advance(self, offset: int) -> None:
        """Remember that everything before `offset` is sent."""
        os.pwrite(self._descriptor, HEADER.pack(MAGIC, offset), 0)

    def remove(self) -> None:
        """Delete it; what is in it is sent, or was never whole."""
        data = self._read()
        whole = max((record.end for record in decode(data, HEADER.size)), default=0)
        if len(data) > whole:
            log.warning("spool_tail_dropped", file=self._path.name, bytes=len(data) - whole)
        self._path.unlink(missing_ok=True)

    def erase(self, covers: Callable[[Record], bool]) -> int:
        """Overwrite each event that `covers`, sent or not, and drop what is behind the last whole record.

        Returns how many of them were still to be sent.
        """
        data = self._read()
        unsent = whole = 0
        for position, record in enumerate(decode(data, HEADER.size)):
            # The first record names the destination.
            if position and record.accepted_ms != ERASED and covers(record):
                blank = encode(bytes(len(record.payload)), ERASED)
                os.pwrite(self._descriptor, blank, record.end - len(blank))
                unsent += record.end > first_unsent(data)
            whole = record.end
        os.ftruncate(self._descriptor, whole)
        os.fsync(self._descriptor)
        return unsent

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


def first_unsent(data: bytes) -> int:
    """The header's offset; behind the end when there is no header, that is, nothing was ever accepted."""
    if len(data) < HEADER.size or not data.startswith(MAGIC):
        return len(data)
    return int(HEADER.unpack_from(data)[1])
