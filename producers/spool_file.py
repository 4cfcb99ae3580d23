"""A spool's file: its form, its lock, and what is done with one. File I/O; `encode`, `decode` and `events` are pure.

A header with the offset from which events are not sent yet, then records of length, checksum, moment and payload. The
first record names the destination. What a kill leaves at the end of a file fails the checksum: it is at most the
append that had not returned. Bytes that fail it with whole records behind them are damage to what was accepted: those
records are sent, and the file is kept aside.
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

DAMAGED = ".damaged"
"""Put behind the name of a file whose whole records are sent and which holds more that cannot be read."""

log = get_logger(__name__)


class Record(NamedTuple):
    """An event's JSON, when it was accepted, and where its record is in the file."""

    payload: bytes
    accepted_ms: int
    """Milliseconds since 1970."""
    end: int

    @property
    def start(self) -> int:
        return self.end - _FRAME.size - _MOMENT.size - len(self.payload)


def encode(payload: bytes, accepted_ms: int = 0) -> bytes:
    """One record. The checksum starts from the length, so that a run of zeros is no record."""
    body = _MOMENT.pack(accepted_ms) + payload
    return _FRAME.pack(len(body), zlib.crc32(body, len(body))) + body


def decode(data: bytes, start: int = 0) -> Iterator[Record]:
    """The records from `start` up to the first that is cut short or damaged."""
    while record := _record_at(data, start):
        yield record
        start = record.end


def whole(data: bytes, start: int) -> Iterator[Record]:
    """The records from `start`, those behind damage too: the next is where a length and a checksum fit again.

    The highest byte of a moment is zero, or a zero follows it where the event is erased; JSON holds none. So nothing
    within an event is taken for a record, and what holds no zero is passed over quickly.
    """
    while start + _FRAME.size <= len(data):
        if record := _record_at(data, start):
            yield record
            start = record.end
            continue
        zero = data.find(b"\0", start + 1)
        if zero < 0:
            return
        start = max(start + 1, zero - _FRAME.size - _MOMENT.size)


def events(data: bytes, start: int) -> Iterator[Record]:
    """The records from `start` that hold an event; the first of a file names the destination."""
    return (record for record in whole(data, start) if record.start > HEADER.size and record.accepted_ms != ERASED)


def damage(data: bytes) -> list[tuple[int, int]]:
    """From where to where whole records follow bytes that are none. What a kill leaves at the end is not among them."""
    ends = HEADER.size
    found = []
    for record in whole(data, ends):
        if record.start > ends:
            found.append((ends, record.start))
        ends = record.end
    return found


def _record_at(data: bytes, start: int) -> Record | None:
    if start + _FRAME.size > len(data):
        return None
    length, checksum = _FRAME.unpack_from(data, start)
    end = start + _FRAME.size + length
    if length <= _MOMENT.size or end > len(data):
        return None
    body = data[start + _FRAME.size : end]
    if zlib.crc32(body, length) != checksum:
        return None
    return Record(body[_MOMENT.size :], _MOMENT.unpack_from(body)[0], end)


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
        """Delete it; what is in it is sent, or was never whole. One that is damaged is kept, under another name."""
        data = self._read()
        if spans := damage(data):
            aside = self._path.with_name(self._path.name + DAMAGED)
            log.warning("spool_file_damaged", file=aside.name, bytes=sum(end - start for start, end in spans))
            self._path.rename(aside)
            return
        if tail := len(data) - _last_end(data):
            log.warning("spool_tail_dropped", file=self._path.name, bytes=tail)
        self._path.unlink(missing_ok=True)

    def erase(self, covers: Callable[[Record], bool]) -> int:
        """Overwrite each event that `covers`, sent or not, and whatever is no whole record: it may be in that as well.

        Returns how many of them were still to be sent.
        """
        data = self._read()
        sent, unsent = first_unsent(data), 0
        for record in events(data, HEADER.size):
            if covers(record):
                blank = encode(bytes(len(record.payload)), ERASED)
                os.pwrite(self._descriptor, blank, record.start)
                unsent += record.end > sent
        for start, end in damage(data):
            os.pwrite(self._descriptor, bytes(end - start), start)
        os.ftruncate(self._descriptor, _last_end(data))
        os.fsync(self._descriptor)
        return unsent

    def _read(self) -> bytes:
        """All of it: a segment and one batch of events."""
        return os.pread(self._descriptor, os.fstat(self._descriptor).st_size, 0)


@contextmanager
def locked(path: Path, flags: int = 0) -> Iterator[SpoolFile | None]:
    """The file under its lock, which is held for one write or one round trip to Redis.

    None when it was sent and deleted or kept aside in the meantime, or is another user's.
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
        yield SpoolFile(path, descriptor) if _is_at(path, descriptor) else None
    finally:
        fcntl.flock(descriptor, fcntl.LOCK_UN)  # closing is not enough when a fork has copied the descriptor
        os.close(descriptor)


def first_unsent(data: bytes) -> int:
    """The header's offset, or where the records begin when it is damaged: sent twice is better than never.

    Behind the end when there is no header, that is, nothing was ever accepted.
    """
    if len(data) < HEADER.size:
        return len(data)
    magic, offset = HEADER.unpack_from(data)
    return int(offset) if magic == MAGIC and HEADER.size <= offset <= len(data) else HEADER.size


def _last_end(data: bytes) -> int:
    """Where the last whole record ends; 0 when there is none."""
    return max((record.end for record in whole(data, HEADER.size)), default=0)


def _is_at(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False
