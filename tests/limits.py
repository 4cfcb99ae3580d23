"""Disks that are full or read-only, for any user and without mounting anything. Does I/O: limits of processes, modes.

A file-size limit is what a full disk is to a process, and can be set on one that runs and lifted again. For root, modes
count only without the capability to override them. Run as `python limits.py LIMIT-FILE COMMAND…` it executes the
command, which then sees a write over the bytes that LIMIT-FILE names (if it is there) as an error, and obeys modes.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_PR_CAPBSET_DROP = 24
"""From linux/prctl.h."""
_OVERRIDES = (1, 2)
"""CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH."""


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """In this process, no file can grow over `size` bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@contextmanager
def largest_file_of(pids: Iterable[int], size: int, limit_file: Path | None = None) -> Iterator[None]:
    """In these running processes, and in those started under `limit_file` meanwhile, no file can grow over `size`."""
    everyone = list(pids)
    if limit_file is not None:
        limit_file.write_text(str(size))
    for pid in everyone:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
    try:
        yield
    finally:
        if limit_file is not None:
            limit_file.unlink()
        for pid in everyone:
            with suppress(ProcessLookupError):  # a write error may have ended it
                resource.prlimit(pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """Nothing in the folder can be written or made by a process that obeys modes."""
    modes = {path: path.stat().st_mode for path in (folder, *folder.rglob("*")) if not path.is_symlink()}
    for path, mode in modes.items():
        path.chmod(mode & 0o555)
    try:
        yield
    finally:
        for path, mode in modes.items():
            with suppress(FileNotFoundError):  # a socket of a process that has ended
                path.chmod(mode)


def obeying(limit_file: Path) -> list[str]:
    """What to put in front of a command line."""
    return [sys.executable, __file__, str(limit_file)]


def main(limit_file: Path, argv: list[str]) -> None:
    """Become the command."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # or a write over the limit kills instead of failing
    for capability in _OVERRIDES:
        ctypes.CDLL(None).prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)  # refused to whoever does not have it anyway
    with suppress(FileNotFoundError):
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(limit_file.read_text()), resource.RLIM_INFINITY))
    os.execv(argv[0], argv)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
