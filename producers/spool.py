"""The spool: turn events kept on this machine while Redis is away. File I/O only.

A file belongs to one process, one lane and one Redis, and is written by that process alone. Whoever holds its lock may
send it (`producers/stream.py` does), so what a dead process left needs no owner.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Lock

from producers.connection import safe_location
from producers.errors import SpoolFull, StreamUnavailable
from producers.settings import LANES, Lane, Settings
from producers.spool_file import DAMAGED, HEADER, MAGIC, Record, damage, decode, encode, events, first_unsent, locked

FOLDER = "spool"
SUFFIX = ".spool"
SEGMENT_BYTES = 4 << 20
"""A file that has grown to this is followed by a new one, so that disk space returns while a large spool is sent."""
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@dataclass(frozen=True)
class Spooled:
    """What waits on this machine."""

    files: int = 0
    events: int = 0
    bytes: int = 0


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

    def all(self) -> Spooled:
        """What waits for this lane and Redis, of every process."""
        return _measure(self.paths())

    def append(self, payloads: Sequence[bytes], why: str) -> None:
        """Keep `payloads`, all of them or none; when it returns they are on the disk.

        `why` they are not on the stream becomes part of an error. Raises `SpoolFull` at the bound or when the disk is
        full, and `StreamUnavailable` when the spool cannot be written for another reason.
        """
        now = int(time.time() * 1000)
        data = b"".join(encode(payload, now) for payload in payloads)
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
        whole = HEADER.pack(MAGIC, HEADER.size + len(first)) + first + data
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
        waiting = len(list(events(data, first_unsent(data))))
        if first := next(decode(data, HEADER.size), None):
            address, prefix, _ = json.loads(first.payload)
            name = f"{address}, key prefix {prefix}"
            counts[name] = counts.get(name, 0) + waiting
        elif waiting:
            counts[f"its address in {path.name} is damaged"] = waiting
    return counts


def damaged(settings: Settings) -> list[str]:
    """What of this data dir's spool could not be read, and what to do, a sentence a file."""
    sizes = {
        path: sum(end - start for start, end in damage(_content(path)))
        for path in _listed(settings.data_dir / FOLDER, DAMAGED)
    }
    return [
        f"{size:,} bytes of {path} could not be read: the turns in them were accepted and cannot be recalled; all "
        "others of that file were sent. Push again what was pushed while Redis was away (what is stored already is "
        "kept once), then delete the file"
        for path, size in sizes.items()
    ]


def erase_spooled(settings: Settings, covers: Callable[[Record], bool]) -> int:
    """Overwrite the events in this data dir that `covers`, for whatever Redis; returns how many were to be sent.

    What was kept aside is looked at last: a sender may do that to a file meanwhile.
    """
    erased = 0
    for suffix in (SUFFIX, DAMAGED):
        for path in _listed(settings.data_dir / FOLDER, suffix):
            with locked(path) as file:
                erased += file.erase(covers) if file is not None else 0
    return erased


def spooled_events(settings: Settings) -> Iterator[Record]:
    """Every event in this data dir that is to be sent, to whatever Redis."""
    for path in _listed(settings.data_dir / FOLDER):
        data = _content(path)
        yield from events(data, first_unsent(data))


def spool_records(settings: Settings) -> Iterator[tuple[Lane, str, Record]]:
    """What is to be sent to the Redis of these settings, oldest first in each lane: (lane, file name, event)."""
    for lane in LANES:
        for path in Spool(settings, lane).paths():
            data = _content(path)
            for record in events(data, first_unsent(data)):
                yield lane, path.name, record


def _destination(settings: Settings, lane: Lane) -> tuple[str, str, str]:
    """Address without password, key prefix, lane: a turn must never reach another system that shares the data dir."""
    return ("embedded" if settings.redis_url is None else safe_location(settings), settings.key_prefix, lane)


def _prefix(destination: tuple[str, str, str]) -> str:
    return f"{destination[-1]}-{hashlib.sha256(json.dumps(destination).encode()).hexdigest()[:12]}-"


def _listed(folder: Path, suffix: str = SUFFIX) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if path.suffix == suffix)
    except (FileNotFoundError, NotADirectoryError, PermissionError):  # nothing was spooled, or it is another user's
        return []


def _measure(paths: Sequence[Path]) -> Spooled:
    """Without locks: a number that is a moment old is good enough for people."""
    files = [(data, first_unsent(data)) for data in map(_content, paths) if data]
    return Spooled(
        files=len(files),
        events=sum(1 for data, start in files for _ in events(data, start)),
        bytes=sum(len(data) - start for data, start in files),
    )


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
