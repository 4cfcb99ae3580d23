"""Where this data dir's query service answers: a small file that it holds locked while it listens. File I/O.

Light, so that a client on the same machine finds the service without being told. The lock says whether its writer
lives, which a pid does not: the kernel drops it at a kill -9, and gives it to no later process of the same number.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

API_FILE = "api.json"
_TRIES, _WAIT = 20, 0.01
"""For the lock, and seconds between two: a client that looks holds it for a moment."""


class Announcement:
    """This process is found at a URL until `close`, or until it dies."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def close(self) -> None:
        """Take it back. The file stays: without it two processes could lock two files of one name."""
        with suppress(OSError):
            self._file.truncate(0)
        self._file.close()


def announce(data_dir: Path, url: str) -> Announcement | None:
    """Say that this process answers at `url`; None when another one that lives has said so. Raises `OSError`."""
    data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    file = (data_dir / API_FILE).open("a+b")
    try:
        tries = 0
        while not _locks(file, fcntl.LOCK_EX):
            if (tries := tries + 1) == _TRIES:
                file.close()
                return None
            time.sleep(_WAIT)
        file.truncate(0)
        file.write(json.dumps({"url": url, "pid": os.getpid()}).encode())
        file.flush()
    except OSError:
        file.close()
        raise
    return Announcement(file)


def api_url(data_dir: Path) -> str | None:
    """The URL of the service that runs on this machine for this data dir; None when none does."""
    try:
        with (data_dir / API_FILE).open("rb") as file:
            if _locks(file, fcntl.LOCK_SH):
                return None  # nobody holds it
            found = json.load(file)
    except (OSError, ValueError):
        return None
    url = found.get("url") if isinstance(found, dict) else None
    return url if isinstance(url, str) else None


def _locks(file: BinaryIO, kind: int) -> bool:
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
