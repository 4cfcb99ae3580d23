"""Starting and ending child processes that do not outlive their parent. Does I/O: processes and their log files.

A child gets a session of its own, so that Ctrl-C in a terminal reaches the parent only and the parent decides the order
in which children end. On Linux the kernel sends a child SIGTERM when its parent dies, however it dies; elsewhere the
next `up` ends what is left.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from producers.errors import NotReady

MAX_LOG_BYTES = 10 << 20
"""A log larger than this is set aside as `.1` when its process starts, so that two files of a child are kept."""
POLL_SECONDS = 0.05
_PR_SET_PDEATHSIG = 1
"""From linux/prctl.h."""

Process = subprocess.Popen[bytes]


def spawn(argv: Sequence[str], log: Path, environment: Mapping[str, str] | None = None) -> Process:
    """Start `argv` with its output appended to `log`. Raises `NotReady` when it cannot be started.

    Call it from the main thread: Linux ties the death signal to the thread that forked, not to the process.
    """
    if threading.current_thread() is not threading.main_thread():
        raise NotReady(f"{argv[0]}: start children from the main thread, or they end with the thread")
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        _rotate(log)
        with log.open("ab") as output:
            return subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
                preexec_fn=die_with_parent(os.getpid()),
            )
    except (OSError, subprocess.SubprocessError) as error:
        raise NotReady(f"{argv[0]} could not be started (log: {log}): {error}") from error


def end(processes: Iterable[Process], grace: float, impatient: Callable[[], bool] = lambda: False) -> list[Process]:
    """Ask all to end with SIGTERM, wait up to `grace` seconds together, kill the rest with their process groups.

    `impatient` true ends the wait early. Returns those that had to be killed.
    """
    running = [process for process in processes if process.poll() is None]
    for process in running:
        process.terminate()
    deadline = time.monotonic() + grace
    while running and time.monotonic() < deadline and not impatient():
        time.sleep(POLL_SECONDS)
        running = [process for process in running if process.poll() is None]
    for process in running:
        os.killpg(process.pid, signal.SIGKILL)  # not reaped yet, so the pid and its group are still this child's
    for process in running:
        process.wait()
    return running


def describe_exit(code: int) -> str:
    """`Popen.returncode` in words."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"


def log_tail(log: Path, lines: int = 5, most_bytes: int = 4096) -> str:
    """The last lines of a log, for a message; says so when there are none."""
    try:
        with log.open("rb") as source:
            source.seek(0, os.SEEK_END)
            source.seek(max(0, source.tell() - most_bytes))
            text = source.read().decode(errors="replace").strip()
    except OSError as error:
        return f"{log}: {error.strerror or error}"
    return "\n".join(text.splitlines()[-lines:]) or f"{log} is empty"


def last_error(log: Path) -> str:
    """What a child of ours said when it could not go on, as the end of a sentence; empty when it said nothing."""
    line = log_tail(log, lines=1)
    return f"; it said: {line.removeprefix('error: ')}" if line.startswith("error: ") else ""


def _rotate(log: Path) -> None:
    if log.exists() and log.stat().st_size > MAX_LOG_BYTES:
        log.replace(log.with_name(log.name + ".1"))


def die_with_parent(parent: int) -> Callable[[], None] | None:
    if sys.platform != "linux":
        return None
    prctl = ctypes.CDLL(None, use_errno=True).prctl  # looked up before the fork; after it only the call is left

    def in_child() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:  # it died between fork and prctl, and no signal will come
            os._exit(1)

    return in_child
