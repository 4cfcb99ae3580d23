"""Whether a file is the one that was read before, and has only grown. Does I/O: reads a few bytes of it."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from workers.stores.imports import FileProgress, FileStamp

ENDS_BYTES = 4096
"""Of a file's beginning and of its end at that time; when both are as before, nothing was written in between."""


def stamp_of(path: Path) -> FileStamp:
    """What the file is like now. Raises `OSError`."""
    status = path.stat()
    return FileStamp(
        size=status.st_size,
        mtime_us=status.st_mtime_ns // 1000,
        inode=status.st_ino,
        ends_digest=_ends_digest(path, status.st_size),
    )


def goes_on(path: Path, now: FileStamp, known: FileProgress, *, in_place: bool) -> bool:
    """Whether the file can be read from where it was left: it is as it was, or has only grown; one that is changed
    `in_place` looks after that itself.

    Copies of a file are told by their content, not by their inode. One in which something was bad and that has changed
    may have been repaired, or its last line finished; and one that was written to and is no larger was written within.
    """
    before = known.stamp
    if now == before:
        return True
    if known.bad or (known.finished and now.size == before.size and not in_place):
        return False
    return in_place or (now.size >= before.size and _ends_digest(path, before.size) == before.ends_digest)


def _ends_digest(path: Path, size: int) -> str:
    with path.open("rb") as file:
        head = file.read(min(size, ENDS_BYTES))
        file.seek(max(0, size - ENDS_BYTES), os.SEEK_SET)
        tail = file.read(min(size, ENDS_BYTES))
    return hashlib.sha256(head + tail).hexdigest()[:32]
