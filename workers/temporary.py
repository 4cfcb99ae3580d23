"""Where a process of ours keeps temporary files: in the data dir, so that a forget searches them and a kill leaves none
for ever. Does I/O.

LanceDB sorts the vectors of an index it builds in files of the folder that TMPDIR names, and deletes them when it ends.
"""

from __future__ import annotations

import atexit
import fcntl
import os
import shutil
import tempfile
from pathlib import Path

from producers.settings import Settings

FOLDER = "tmp"
LOCK = "lock"
"""In each folder, held by its process: a pid says nothing of a process in another container on the same data dir."""


def keep_in_data_dir(settings: Settings) -> None:
    """Put this process's temporary files into a folder of its own there; if none can be made, all stays as it is."""
    if not settings.data_dir.is_dir():
        return
    clear(settings)
    try:
        (settings.data_dir / FOLDER).mkdir(mode=0o700, exist_ok=True)
        folder = Path(tempfile.mkdtemp(dir=settings.data_dir / FOLDER))
        descriptor = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_EX)  # until this process ends, however it does
    except OSError:  # read-only: nothing is written then
        return
    os.environ["TMPDIR"] = str(folder)
    tempfile.tempdir = None  # what it remembers of TMPDIR
    atexit.register(shutil.rmtree, folder, ignore_errors=True)


def clear(settings: Settings) -> None:
    """Delete what processes that are gone have left."""
    for lock in (settings.data_dir / FOLDER).glob(f"*/{LOCK}"):
        try:
            descriptor = os.open(lock, os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(lock.parent, ignore_errors=True)
        except BlockingIOError:  # it runs
            pass
        finally:
            os.close(descriptor)
