"""The process tree of `up`: embedded Redis first, then our own commands, restarted when they die. Does I/O: processes.

One thread, one loop. When to restart a child is decided in `workers/supervision/child.py`.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from types import FrameType, TracebackType
from typing import Self

from producers.errors import NotReady
from producers.settings import ENV_PREFIX, Settings
from workers.supervision import redis_server
from workers.supervision.child import Child, ChildEvent, ChildSpec, What
from workers.supervision.process import describe_exit, end, last_error, log_tail, spawn
from workers.supervision.tree_state import STATE_FILE, ProcessId, TreeState, UpLock, load_state, ready_file, write_state

GRACE = 20.0
"""Seconds a child may take to stop: a worker finishes its batch."""
LEFTOVER_GRACE = 10.0
TICK = 0.2
WRITE_INTERVAL = 5.0
"""Seconds between two writes of the state file when nothing changes."""


class Supervisor:
    """Runs a process tree on a data dir. Use it as a context manager from the main thread, and call `poll` often.

    Redis is added as the first child unless the settings name one.
    """

    def __init__(
        self,
        settings: Settings,
        specs: Iterable[ChildSpec],
        *,
        on_event: Callable[[ChildEvent], None] = lambda event: None,
    ) -> None:
        self._settings = settings
        self._children = [Child(spec) for spec in specs]
        self._on_event = on_event
        self._lock = UpLock(settings.data_dir)
        self._started_at = datetime.now(UTC)
        self._self = ProcessId.of(os.getpid())
        self._next_write = 0.0
        self._signals = 0

    def run(self) -> None:
        """Run until SIGINT, SIGTERM or SIGHUP, then stop. A second signal stops waiting and kills."""
        with self._signals_counted(), self:
            while not self._signals:
                self.poll()
                time.sleep(TICK)

    def start(self) -> None:
        """Take the data dir, see off what an earlier tree left, start Redis and wait for it, start the others.

        Raises `UsageError` when another tree runs here, `NotReady` when Redis cannot be started.
        """
        self._lock.acquire()
        try:
            self._end_leftovers()
            if self._settings.redis_url is None:
                self._start_redis()
            self.poll()
        except BaseException:
            self.stop()
            raise

    def poll(self) -> None:
        """One turn of the loop: notice deaths, restart what is due, notice readiness, keep the state file fresh."""
        changed = False
        for child in self._children:
            if self._signals:
                break
            changed |= self._notice_death(child)
            if child.process is None and time.monotonic() >= child.start_at:
                self._start_child(child)
                changed = True
            changed |= self._notice_ready(child)
        if changed or time.monotonic() >= self._next_write:
            self._notice_errors()
            self._write_state()

    @property
    def ready(self) -> bool:
        """Whether every child can work."""
        return all(child.ready for child in self._children)

    def wait_ready(self, timeout: float) -> None:
        """Poll until every child is ready. Raises `NotReady` naming those that are not, with the end of their logs."""
        deadline = time.monotonic() + timeout
        while not self.ready:
            hopeless = [child for child in self._children if child.hopeless]
            if hopeless or time.monotonic() > deadline:
                late = hopeless or [child for child in self._children if not child.ready]
                why = "ends again and again" if hopeless else f"not ready after {timeout:.0f} s"
                raise NotReady("\n".join(self._complaint(child, why) for child in late))
            time.sleep(TICK)
            self.poll()

    def stop(self) -> None:
        """End the children rank by rank, Redis last, and remove the socket and the state file."""
        for _, group in groupby(sorted(self._children, key=_rank), key=_rank):
            self._stop_together(list(group))
        if any(child.spec.name == redis_server.NAME for child in self._children):
            redis_server.remove_socket(self._settings)
        _discard(self._settings.data_dir / STATE_FILE)
        self._lock.release()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    def _start_redis(self) -> None:
        settings = self._settings
        argv = tuple(redis_server.prepare(settings))
        last = 1 + max((child.spec.stop_rank for child in self._children), default=0)
        spec = ChildSpec(redis_server.NAME, argv, last, at_once=True, ready=lambda: redis_server.answers(settings))
        child = Child(spec)
        self._children.insert(0, child)
        self._start_child(child)
        if child.process is None:
            raise NotReady(f"the embedded Redis {child.last_exit}")
        redis_server.wait_until_ready(settings, child.process, give_up=lambda: self._signals > 0)

    def _start_child(self, child: Child) -> None:
        settings = self._settings
        inherited = {key: value for key, value in os.environ.items() if not key.startswith(ENV_PREFIX)}
        _discard(ready_file(settings.data_dir, child.spec.name))
        try:
            process = spawn(child.spec.argv, self._log(child), inherited | settings.as_environment())
        except NotReady as error:  # no memory or no process slot: a later try is the right answer to it
            self._back_off(child, 1, str(error))
            return
        child.start(process, ProcessId.of(process.pid), time.monotonic())
        self._tell(child.spec.name, "started", f"pid {process.pid}")

    def _notice_death(self, child: Child) -> bool:
        if child.process is None or child.process.poll() is None:
            return False
        code = child.process.returncode
        # Only a process that ended by itself can have said why.
        self._back_off(child, code, describe_exit(code) + (self._last_words(child) if code > 0 else ""))
        return True

    def _back_off(self, child: Child, code: int, why: str) -> None:
        delay = child.fail(code, why, time.monotonic())
        self._tell(child.spec.name, "ended", f"{why}; restart in {delay:.0f} s, log: {self._log(child)}")

    def _notice_ready(self, child: Child) -> bool:
        if child.ready or child.process is None:
            return False
        marked = ready_file(self._settings.data_dir, child.spec.name)
        child.ready = child.spec.ready() if child.spec.ready else marked.exists()
        if child.ready:
            child.ever_ready = True
            self._tell(child.spec.name, "ready", f"after {time.monotonic() - child.started:.1f} s")
        return child.ready

    def _notice_errors(self) -> None:
        """A child that runs and cannot work yet may have said why: its port is taken, for example."""
        for child in self._children:
            waiting = child.process is not None and not child.ready
            said = self._last_words(child) if waiting else ""
            if said and said != child.said:
                self._tell(child.spec.name, "troubled", f"it is not ready yet{said}")
            child.said = said

    def _stop_together(self, children: list[Child]) -> None:
        running = {child.process: child for child in children if child.process is not None}
        killed = end(running, GRACE, impatient=lambda: self._signals > 1)
        for process, child in running.items():
            how = describe_exit(process.returncode)
            child.stop(how)
            self._tell(child.spec.name, "killed" if process in killed else "stopped", how)
        for child in children:
            child.stop(None)
            _discard(ready_file(self._settings.data_dir, child.spec.name))
        self._write_state()

    def _end_leftovers(self) -> None:
        """Children of a killed supervisor that the kernel's signal has not ended (not Linux, or stuck)."""
        state = load_state(self._settings.data_dir)
        left = [c.process for c in state.children if c.process and c.process.alive()] if state else []
        for process in left:
            os.kill(process.pid, signal.SIGTERM)
        deadline = time.monotonic() + LEFTOVER_GRACE
        while any(process.alive() for process in left) and time.monotonic() < deadline:
            time.sleep(TICK)
        for process in left:
            if process.alive():
                os.kill(process.pid, signal.SIGKILL)

    def _write_state(self) -> None:
        now = datetime.now(UTC).isoformat(timespec="seconds")
        started = self._started_at.isoformat(timespec="seconds")
        state = TreeState(self._self, started, now, tuple(child.as_state() for child in self._children))
        self._next_write = time.monotonic() + WRITE_INTERVAL
        try:
            write_state(self._settings.data_dir, state)
        except OSError as error:  # a full disk: the children may yet be able to work
            self._tell("supervisor", "troubled", f"{STATE_FILE} could not be written: {error}")

    def _tell(self, name: str, what: What, detail: str) -> None:
        with suppress(OSError):  # the terminal may be gone, which is no reason to leave children behind
            self._on_event(ChildEvent(name, what, detail))

    def _last_words(self, child: Child) -> str:
        is_redis = child.spec.name == redis_server.NAME
        return redis_server.last_error(self._settings) if is_redis else last_error(self._log(child))

    def _log(self, child: Child) -> Path:
        return self._settings.data_dir / "logs" / f"{child.spec.name}.log"

    def _complaint(self, child: Child, why: str) -> str:
        log = self._log(child)
        return f"{child.spec.name} {why}. The end of {log}:\n{log_tail(log)}"

    @contextmanager
    def _signals_counted(self) -> Iterator[None]:
        def count(number: int, frame: FrameType | None) -> None:
            self._signals += 1

        # A signal that the caller ignores stays ignored: `nohup` does that with SIGHUP.
        wanted = [s for s in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP) if signal.getsignal(s) != signal.SIG_IGN]
        before = {number: signal.signal(number, count) for number in wanted}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _rank(child: Child) -> int:
    return child.spec.stop_rank


def _discard(path: Path) -> None:
    """Delete a file that says how the tree is doing; on a read-only disk it stays, and the children matter more."""
    with suppress(OSError):
        path.unlink(missing_ok=True)
