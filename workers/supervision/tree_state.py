"""What a data dir says of the process tree that runs on it: one lock and one state file. Does I/O on small files.

Light to import: `status` reads it and every child marks itself ready through it.
"""

from __future__ import annotations

import fcntl
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

from producers.errors import NotReady, UsageError
from producers.logs import get_logger

STATE_FILE = "up.json"
LOCK_FILE = "up.lock"
CLOCK_TOLERANCE = 2.0
"""Seconds two readings of a process's start time may differ: it is derived from the wall clock, which is adjusted."""

log = get_logger(__name__)


@dataclass(frozen=True)
class ProcessId:
    """A pid with the start time that tells a process from a later one with the same pid."""

    pid: int
    created: float
    """Seconds since 1970."""

    @classmethod
    def of(cls, pid: int) -> ProcessId:
        """The running process `pid`; one that is already gone gets a start time that matches nothing."""
        import psutil  # part of the workers extra, and a child that only marks itself ready needs none

        try:
            return cls(pid, psutil.Process(pid).create_time())
        except psutil.Error:
            return cls(pid, 0.0)

    def alive(self) -> bool:
        """Whether that very process still runs; a zombie does not."""
        import psutil

        try:
            process = psutil.Process(self.pid)
            same = abs(process.create_time() - self.created) <= CLOCK_TOLERANCE
            return same and process.status() != psutil.STATUS_ZOMBIE
        except psutil.Error:
            return False


@dataclass(frozen=True)
class ChildState:
    """One child as `status` shows it."""

    name: str
    process: ProcessId | None
    """None while it is not running."""
    state: Literal["running", "backoff", "stopped"]
    ready: bool
    restarts: int
    last_exit: str | None
    """How it last ended, in words."""
    since: str
    """ISO 8601: when `state` last changed."""


@dataclass(frozen=True)
class TreeState:
    """The supervisor and its children."""

    process: ProcessId
    started_at: str
    updated_at: str
    children: tuple[ChildState, ...]


def write_state(data_dir: Path, state: TreeState) -> None:
    """Replace the state file atomically."""
    partial = data_dir / f".{STATE_FILE}.partial"
    partial.write_text(json.dumps(asdict(state), indent=1), encoding="utf-8")
    partial.replace(data_dir / STATE_FILE)


def load_state(data_dir: Path) -> TreeState | None:
    """The state file as last written, by a live supervisor or a dead one; None when there is none to be read."""
    path = data_dir / STATE_FILE
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
        children = tuple(
            ChildState(**{**child, "process": ProcessId(**child["process"]) if child["process"] else None})
            for child in raw["children"]
        )
        return TreeState(ProcessId(**raw["process"]), raw["started_at"], raw["updated_at"], children)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise NotReady(f"{path} cannot be read: {error.strerror or error}") from error
    except (ValueError, TypeError, KeyError):
        return None  # torn by a power cut, or of another version: it says nothing


def read_state(data_dir: Path) -> TreeState | None:
    """The tree that runs on `data_dir` now; None when no supervisor lives, whatever an old file says."""
    state = load_state(data_dir)
    return state if state is not None and state.process.alive() else None


def ready_file(data_dir: Path, name: str) -> Path:
    """Exists while the child `name` is ready for work."""
    return data_dir / "run" / f"{name}.ready"


def mark_ready(data_dir: Path, name: str) -> None:
    """Called by a child once it can work. A disk that is full or read-only does not keep it from working."""
    path = ready_file(data_dir, name)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    except OSError as error:
        log.warning("ready_not_marked", file=str(path), reason=error.strerror)


class UpLock:
    """Held by the one process that may run children on a data dir; the kernel drops it when that process dies."""

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir
        self._descriptor: int | None = None

    def acquire(self) -> None:
        """Raises `UsageError` naming the holder's pid when it is taken, `NotReady` when the data dir cannot be used."""
        path = self._data_dir / LOCK_FILE
        try:
            self._data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)  # what is remembered is private
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise NotReady(
                f"data dir {self._data_dir} cannot be used: {error.strerror or error}. Nothing in it was changed: make "
                "it writable and see that its disk has room, or choose another --data-dir"
            ) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(descriptor, 32, 0).decode(errors="replace").strip() or "unknown"
            os.close(descriptor)
            raise UsageError(
                f"already running as pid {holder} on data dir {self._data_dir}; stop it, or choose another --data-dir"
            ) from None
        except OSError as error:
            os.close(descriptor)
            raise NotReady(f"{path} cannot be locked: {error.strerror or error}") from error
        os.truncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        self._descriptor = descriptor

    def release(self) -> None:
        """The file stays: removing it would let two processes lock two files of one name."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def __enter__(self) -> Self:
        self.acquire()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.release()
