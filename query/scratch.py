"""A whole system on a data dir of its own, for `demo` and `eval`: started, filled, drained and stopped. Does I/O."""

from __future__ import annotations

import signal
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

from producers.connection import connect
from producers.errors import Busy, NotReady
from producers.events import TurnEvent
from producers.logs import configure_logging
from producers.settings import Settings
from producers.stream import EventStream
from producers.terminal import Terminal
from workers.commands.up import share_cores
from workers.maintenance.run import run_job
from workers.progress import read_progress
from workers.supervision.child import ChildEvent, default_specs
from workers.supervision.supervisor import Supervisor

READY_TIMEOUT = 180.0
"""Seconds until every process can work; loading torch and a model takes most of it, on a cold disk."""
POLL = 0.2


@contextmanager
def scratch_settings(settings: Settings, keep: Path | None) -> Iterator[Settings]:
    """The settings on a fresh data dir with an embedded Redis; the folder goes at the end unless it is `keep`."""
    quiet_logs(settings)
    own = {"redis_url": None, "catalog_url": None, "vectors_uri": None, "serve": False}
    if keep is not None:
        if keep.is_dir() and any(keep.iterdir()):
            raise NotReady(f"{keep}: not empty; name a new folder, so that nothing of yours is mixed in")
        yield settings.model_copy(update={**own, "data_dir": keep.absolute()})
        return
    with tempfile.TemporaryDirectory(prefix="scope-recall-", ignore_cleanup_errors=True) as folder:
        yield settings.model_copy(update={**own, "data_dir": Path(folder)})


def quiet_logs(settings: Settings) -> None:
    """Warnings only, unless a level was set: a person watches, and the children keep logs of their own."""
    configure_logging(settings.log_level if "log_level" in settings.model_fields_set else "warning")


@contextmanager
def running_system(terminal: Terminal, settings: Settings) -> Iterator[Supervisor]:
    """The process tree of `up`, ready to work; stopped at the end."""

    def say(event: ChildEvent) -> None:
        if event.what != "started":
            terminal.note(f"  {event.name}: {event.what} {event.detail}", style="dim")

    interrupt_on_sigterm()
    share_cores(settings.workers)
    with Supervisor(settings, default_specs(settings), on_event=say) as supervisor:
        supervisor.wait_ready(READY_TIMEOUT)
        yield supervisor


def interrupt_on_sigterm() -> None:
    """SIGTERM becomes a Ctrl-C, so that children stop in order and the scratch folder goes."""

    def interrupt(signum: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)


def push_and_drain(
    terminal: Terminal, settings: Settings, supervisor: Supervisor, events: Iterable[TurnEvent], timeout: float
) -> int:
    """Push the events and wait until each can be recalled; returns how many. Raises `NotReady` when time runs out."""
    with EventStream(settings) as stream:
        pushed = stream.append(events)
    deadline = time.monotonic() + timeout
    with connect(settings) as client, terminal.progress() as bar:
        task = bar.add_task("chunking, embedding, storing", total=pushed)
        while True:
            supervisor.poll()
            progress = read_progress(settings)
            left = progress.waiting
            if progress.dead:
                raise NotReady(f"{progress.dead} turns became dead letters; the logs in {settings.data_dir} say why")
            bar.update(task, completed=pushed - left)
            if left == 0:
                with suppress(Busy):  # the scheduler's own run is at it
                    run_job("index", settings, client)
                    return pushed
            if time.monotonic() > deadline:
                raise NotReady(f"{left} of {pushed} turns were not stored within {timeout:.0f} s")
            time.sleep(POLL)
