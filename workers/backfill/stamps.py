"""Whether a file is the one that was read before, and has only grown. Does I/O: reads a few bytes of it."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from workers.stores.imports import FileStamp

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


def has_only_grown(path: Path, before: FileStamp) -> bool:
    """Whether what was there before is there still. Copies of a file are told by their content, not by their inode."""
    return path.stat().st_size >= before.size and _ends_digest(path, before.size) == before.ends_digest


def _ends_digest(path: Path, size: int) -> str:
    with path.open("rb") as file:
        head = file.read(min(size, ENDS_BYTES))
        file.seek(max(0, size - ENDS_BYTES), os.SEEK_SET)
        tail = file.read(min(size, ENDS_BYTES))
    return hashlib.sha256(head + tail).hexdigest()[:32]
