"""The folder a backup is written into: beside its place and under another name until it is whole. Does file I/O."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from producers.errors import Busy, NotReady, UsageError
from workers.backup.manifest import sync_path

SUFFIX = ".partial"
_ELSEWHERE = "a backup is written there first: move it away, or choose another place for the backup"
MARK = ".written-by-scope-recall-backup"
"""An empty file, there before all else and gone after it: only what lies beside it may be taken away."""


@contextmanager
def partial_folder(target: Path) -> Iterator[Path]:
    """A folder for the block to fill, which becomes `target` when it ends well and is deleted when it fails.

    A kill leaves it, and the next backup to the same place takes it away. Raises `UsageError` when `target` is in use,
    or the folder is somebody else's, `Busy` when another backup is writing there, `NotReady` when it cannot be written.
    """
    _check(target)
    partial = target.with_name(target.name + SUFFIX)
    if os.path.lexists(partial) and (partial.is_symlink() or os.path.ismount(partial) or not partial.is_dir()):
        raise UsageError(f"{partial} is a link, a mount point or a file; {_ELSEWHERE}")
    try:
        partial.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(partial, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise NotReady(f"backup {partial}: {error.strerror or error}") from None
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _claim(partial)
        except BlockingIOError:
            raise Busy(f"another backup is being written to {partial}") from None
        except OSError as error:
            raise NotReady(f"backup {partial}: {error.strerror or error}") from None
        try:
            _empty(partial)
            yield partial
            sync_path(partial)
            partial.rename(target)
            sync_path(target.parent)
            (target / MARK).unlink()
        except BaseException as error:
            with suppress(OSError):
                _empty(partial)
                (partial / MARK).unlink()
                partial.rmdir()
            if isinstance(error, OSError):
                raise NotReady(f"backup {target}: {error.strerror or error}; nothing of it is left there") from None
            raise
    finally:
        os.close(descriptor)


def _check(target: Path) -> None:
    if not target.name:
        raise UsageError(f"{target}: name a folder that does not exist yet")
    if target.is_symlink() or os.path.ismount(target):
        raise UsageError(f"{target} is a link or a mount point: name a folder inside it")
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise UsageError(f"{target} is not empty: a backup needs a folder of its own, which need not exist yet")


def _claim(folder: Path) -> None:
    """Mark an empty folder as a backup's. Raises `UsageError` for what no backup has left."""
    if not os.path.lexists(folder / MARK):
        if any(folder.iterdir()):
            raise UsageError(f"{folder} is not empty, and nothing shows that a backup has left it; {_ELSEWHERE}")
        (folder / MARK).touch(mode=0o600)
        sync_path(folder)


def _empty(folder: Path) -> None:
    """Take away what a killed backup left, except for the mark."""
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif path.name != MARK:
            path.unlink()
