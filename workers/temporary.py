"""Where a process of ours keeps temporary files: in the data dir, so that a forget searches them and a kill leaves none
for ever. Does I/O.

LanceDB sorts the vectors of an index it builds in files of the folder that TMPDIR names, and deletes them when it ends.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from pathlib import Path

from producers.settings import Settings
from workers.supervision.tree_state import ProcessId

FOLDER = "tmp"
_PER_SECOND = 1000


def keep_in_data_dir(settings: Settings) -> None:
    """Put this process's temporary files into a folder of its own there; if none can be made, all stays as it is."""
    if not settings.data_dir.is_dir():
        return
    clear(settings)
    folder = settings.data_dir / FOLDER / _name(ProcessId.of(os.getpid()))
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError:  # read-only: nothing is written then
        return
    os.environ["TMPDIR"] = str(folder)
    tempfile.tempdir = None  # what it remembers of TMPDIR
    atexit.register(shutil.rmtree, folder, ignore_errors=True)


def clear(settings: Settings) -> None:
    """Delete what processes that are gone have left."""
    for folder in (settings.data_dir / FOLDER).glob("*-*"):
        if not _runs(folder):
            shutil.rmtree(folder, ignore_errors=True)


def _name(process: ProcessId) -> str:
    return f"{process.pid}-{int(process.created * _PER_SECOND)}"


def _runs(folder: Path) -> bool:
    pid, _, created = folder.name.partition("-")
    if not (pid.isdecimal() and created.isdecimal()):
        return True  # nobody's of ours
    return ProcessId(int(pid), int(created) / _PER_SECOND).alive()
