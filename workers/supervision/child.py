"""One child of the process tree: what to run, how it is doing, when to restart it. Pure: the supervisor does I/O."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Literal

from producers.settings import Settings
from workers.supervision.process import Process
from workers.supervision.tree_state import ChildState, ProcessId

State = Literal["running", "backoff", "stopped"]
What = Literal["started", "ready", "ended", "stopped", "killed", "troubled"]

FIRST_DELAY = 1.0
LONGEST_DELAY = 30.0
"""Seconds between a death and the restart: doubled from the first to the longest."""
GOOD_RUN = 60.0
"""Seconds of running after which earlier failures are forgotten."""
HOPELESS_FAILURES = 3
"""Failures before it was ever ready from which nobody waits for it any longer."""
SHORTEST_CLEAN_RUN = 5.0
"""Seconds; exit code 0 after at least this long is a worker handing over to a fresh process, not a failure."""


def failures_after(failures: int, *, ran: float, code: int) -> int:
    """Consecutive failures once a child has ended with `code` after `ran` seconds; 0 when this end was none."""
    if code == 0 and ran >= SHORTEST_CLEAN_RUN:
        return 0
    return 1 if ran >= GOOD_RUN else failures + 1


def restart_delay(failures: int, *, at_once: bool = False) -> float:
    """Seconds to wait before the restart; `at_once` forgives the first failure."""
    counted = failures - 1 if at_once else failures
    if counted <= 0:
        return 0.0
    return min(LONGEST_DELAY, FIRST_DELAY * 2.0 ** min(counted - 1, 10))


@dataclass(frozen=True)
class ChildSpec:
    """A child process: what to run, and when to end it."""

    name: str
    argv: tuple[str, ...]
    stop_rank: int = 0
    """Children of a lower rank are stopped earlier."""
    at_once: bool = False
    """Restart without a delay after a first failure."""
    ready: Callable[[], bool] | None = None
    """Whether it can work; None: it has called `mark_ready` under its name."""


def default_specs(settings: Settings) -> list[ChildSpec]:
    """Intake, the ingest workers, the maintenance worker, the scheduler and the query service, as commands of our own.

    `-P` keeps the current folder off the import path: a `workers` or `query` folder there is not ours.
    """
    command = (sys.executable, "-P", "-m", "query.cli")
    ingest = [f"worker-{number}" for number in range(1, settings.workers + 1)]
    service = [ChildSpec("serve", (*command, "serve", "--wait"), stop_rank=0)] if settings.serve else []
    return [
        ChildSpec("intake", (*command, "intake"), stop_rank=1),
        *(ChildSpec(name, (*command, "worker", "--name", name), stop_rank=2) for name in ingest),
        ChildSpec("maintenance", (*command, "worker", "--maintenance", "--name", "maintenance"), stop_rank=2),
        ChildSpec("scheduler", (*command, "scheduler"), stop_rank=0),
        *service,
    ]


@dataclass(frozen=True)
class ChildEvent:
    """Something that happened to a child, or troubles the supervisor itself, for the person watching `up`."""

    name: str
    what: What
    detail: str = ""


@dataclass
class Child:
    """A child's spec and what has become of it; times are `time.monotonic()` values, `since` is a date."""

    spec: ChildSpec
    process: Process | None = None
    identity: ProcessId | None = None
    state: State = "stopped"
    since: datetime = field(default_factory=lambda: datetime.now(UTC))
    started: float = 0.0
    start_at: float = 0.0
    ready: bool = False
    ever_ready: bool = False
    said: str = ""
    """The last error that it logged while it ran and could not work yet."""
    failures: int = 0
    starts: int = 0
    last_exit: str | None = None

    def start(self, process: Process, identity: ProcessId, now: float) -> None:
        """Note that `process` has been started."""
        self.process, self.identity = process, identity
        self.started = now
        self.starts += 1
        self._become("running")

    def fail(self, code: int, why: str, now: float) -> float:
        """Note that it has ended, or could not be started; returns the seconds until its restart."""
        ran = now - self.started if self.process else 0.0
        self.failures = failures_after(self.failures, ran=ran, code=code)
        delay = restart_delay(self.failures, at_once=self.spec.at_once)
        self.start_at = now + delay
        self._leave("backoff", why)
        return delay

    def stop(self, why: str | None) -> None:
        """Note that it has been ended on purpose; `why` None when it was not running."""
        self._leave("stopped", why or self.last_exit)

    @property
    def hopeless(self) -> bool:
        """Whether it keeps failing without ever having been ready."""
        return not self.ever_ready and self.failures >= HOPELESS_FAILURES

    def as_state(self) -> ChildState:
        """As the state file shows it."""
        return ChildState(
            name=self.spec.name,
            process=self.identity,
            state=self.state,
            ready=self.ready,
            restarts=max(0, self.starts - 1),
            last_exit=self.last_exit,
            since=self.since.isoformat(timespec="seconds"),
        )

    def _leave(self, state: State, why: str | None) -> None:
        self.process = self.identity = None
        self.ready = False
        self.last_exit = why
        self._become(state)

    def _become(self, state: State) -> None:
        self.state = state
        self.since = datetime.now(UTC)
