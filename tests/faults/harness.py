"""A system of real processes that are killed at named points or at any time, and an exact look at what is left.

Does I/O: processes, Redis, both stores. The supervisor runs inside the harness, so call `poll` or a method that waits.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from unittest import mock

from producer_process import ProducerProcess

from limits import obeying
from producers import crash_points
from producers.crash_points import Order, Point
from producers.errors import StreamUnavailable
from producers.settings import LANES, load_settings
from workers.progress import in_streams
from workers.queues import MAINTENANCE, connect, rq_queue
from workers.supervision import child, redis_server
from workers.supervision.child import ChildEvent, default_specs
from workers.supervision.supervisor import Supervisor
from workers.supervision.tree_state import load_state

PRODUCER_LANES = ("live", "backfill", "live")
APPEND_TURNS = 10
POLL = 0.02
NO_TTL = -1
WAIT_SECONDS = 60.0
"""Longest wait for one thing to happen, on a loaded machine."""
SETTINGS = {
    "serve": False,
    "embedder": "hashing",
    "reranker": "none",
    "lease": 1.0,
    "batch_turns": 25,
    "batch_wait": 0.02,
    "chunk_tokens": 64,
    "workers": 2,
    # A storm kills far more often than a worker may die of one entry before that entry is held to be the cause.
    "max_deliveries": 50,
}


class CrashSystem:
    """Redis, intake, two workers, maintenance, scheduler and three producers on a folder. Use as a context manager."""

    def __init__(self, folder: Path, *, appendfsync: str = "always", **changes: Any) -> None:
        """`changes`: settings that differ from SETTINGS."""
        self.settings = load_settings(data_dir=folder / "data", **{**SETTINGS, **changes})
        self.redis_limit = folder / "redis-limit"
        """While it is there, no file of a Redis that starts can grow over the bytes it names."""
        self._folder = folder
        self._orders = folder / "orders"
        self._appendfsync = appendfsync
        self._cleanup = ExitStack()
        self._ends: list[ChildEvent] = []
        self.turns = 0
        """Turns pushed so far; they are the known turns from 0 on."""

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._orders.mkdir()
            stack.enter_context(mock.patch.dict(os.environ, {crash_points.VARIABLE: str(self._orders)}))
            # Restarts wait longer and longer for a process that dies again and again; here each death is the harness's.
            stack.enter_context(mock.patch.multiple(child, FIRST_DELAY=0.05, LONGEST_DELAY=0.2))
            stack.enter_context(mock.patch.object(redis_server, "server_argv", self._server_argv))
            specs = default_specs(self.settings)
            self._supervisor = stack.enter_context(Supervisor(self.settings, specs, on_event=self._note))
            self._supervisor.wait_ready(WAIT_SECONDS)
            self._client = stack.enter_context(connect(self.settings))
            self._producers = []
            for number, lane in enumerate(PRODUCER_LANES):
                environment = os.environ | self.settings.as_environment()
                producer = ProducerProcess(lane, self._folder / f"producer-{number}", environment)
                stack.callback(producer.stop)
                self._producers.append(producer)
            self._cleanup = stack.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._cleanup.close()

    def push(self, count: int) -> range:
        """Have the producers push the next `count` turns in turn; returns their numbers and does not wait."""
        numbers = range(self.turns, self.turns + count)
        for at, first in enumerate(range(numbers.start, numbers.stop, APPEND_TURNS)):
            self._producers[at % len(self._producers)].append(first, min(APPEND_TURNS, numbers.stop - first))
        self.turns = numbers.stop
        return numbers

    def order(self, point: Point, *, redis: bool = False, passage: int = 1, after_ms: float = 0.0) -> Path:
        """Have whoever passes `point` killed, or Redis at that moment; the file that is returned goes when it is so."""
        for left in self._orders.iterdir():  # by a test that failed before its order was carried out
            left.unlink(missing_ok=True)
        pid = self.pid("redis") if redis else None
        return Order(passage, pid, after_ms).put(self._orders, point)

    def kill(self, name: str, number: int = 0) -> None:
        """kill -9 of a child of the supervisor, or of the producer with that number."""
        os.kill(self._producers[number].pid if name == "producer" else self.pid(name), signal.SIGKILL)

    def stop(self) -> None:
        """End the tree as a person would."""
        self._supervisor.stop()

    def poll(self) -> None:
        """Let the supervisor and the producers' keeper see what has happened."""
        self._supervisor.poll()
        for producer in self._producers:
            producer.poll()

    def wait_until(self, condition: Callable[[], bool], what: str, seconds: float = WAIT_SECONDS) -> None:
        """Poll until `condition` holds; fails naming `what` did not happen."""
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, f"{what}: not within {seconds:.0f} s; {self._state()}"
            self.poll()
            time.sleep(POLL)

    def wait(self, seconds: float) -> None:
        """Let the system run on for a while."""
        until = time.monotonic() + seconds
        self.wait_until(lambda: time.monotonic() >= until, "waiting")

    def drain(self, seconds: float = WAIT_SECONDS) -> None:
        """Wait until `is_drained`."""
        self.wait_until(self.is_drained, "drained", seconds)

    @property
    def deaths(self) -> int:
        """Processes that SIGKILL has ended, as far as they have been noticed."""
        killed = sum("killed by SIGKILL" in event.detail for event in self._ends)
        return killed + sum(producer.kills for producer in self._producers)

    @property
    def unexpected_ends(self) -> Sequence[ChildEvent]:
        """Processes that ended otherwise."""
        return [event for event in self._ends if "killed by SIGKILL" not in event.detail]

    def waiting_and_dead(self) -> tuple[int, int]:
        """(entries in the streams, dead letters)."""
        return in_streams(self.settings)

    def queued(self) -> int:
        """Jobs in every RQ queue."""
        return sum(rq_queue(lane, self._client, self.settings).count for lane in (*LANES, MAINTENANCE))

    def permanent_keys(self) -> set[str]:
        """Keys in Redis that do not expire by themselves, under names that say what they are for, not whose."""
        prefix = f"{self.settings.key_prefix}:"
        keys = (name.decode() for name in self._client.scan_iter() if self._client.ttl(name) == NO_TTL)
        return {key.removeprefix(prefix) for key in keys}

    def is_drained(self) -> bool:
        """Every append is accepted, the streams are empty and no job is queued."""
        if any(producer.unreported() for producer in self._producers):
            return False
        try:
            return self.waiting_and_dead()[0] == 0 and self.queued() == 0
        except StreamUnavailable:
            return False

    def pid(self, name: str) -> int:
        """The pid of a supervised process, waiting for it where it is being started again."""
        found: list[int] = []

        def look() -> bool:
            state = load_state(self.settings.data_dir)
            assert state is not None
            found[:] = [c.process.pid for c in state.children if c.name == name and c.process and c.process.alive()]
            return bool(found)

        self.wait_until(look, f"{name} runs")
        return found[0]

    def _note(self, event: ChildEvent) -> None:
        if event.what == "ended":
            self._ends.append(event)

    def _server_argv(self, binary: Path, *args: object) -> list[str]:
        argv = _SERVER_ARGV(binary, self.settings)
        argv[argv.index("--appendfsync") + 1] = self._appendfsync
        return [*obeying(self.redis_limit), *argv]

    def _state(self) -> str:
        orders = [path.name for path in self._orders.iterdir()]
        unreported = [len(producer.unreported()) for producer in self._producers]
        return f"orders left {orders}, appends not reported {unreported}, (streams, dead) {self.waiting_and_dead()}"


_SERVER_ARGV = redis_server.server_argv
