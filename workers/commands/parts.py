"""`scope-recall intake`, `worker` and `scheduler`: the parts of `up`, for several machines."""

from __future__ import annotations

import os
import signal
from threading import Event
from types import FrameType

import click

from producers.terminal import DONE, Terminal, command, examples
from workers.queues import connect, use_prefix

NICENESS = 5
"""Of workers: somebody waits for a recall, and nobody for the moment at which a turn is embedded."""


@command(short_help="Run the intake: stream to ingest jobs.", epilog=examples("scope-recall intake"))
@click.option("--name", default="intake", show_default=True, help="Its name in logs and in the consumer group.")
def intake(terminal: Terminal, name: str) -> int:
    """Move turns from the streams into ingest jobs until SIGTERM or Ctrl-C. Several may run."""
    use_prefix(terminal.settings)
    from workers.intake import run_intake

    stopping = Event()

    def stop(signum: int, frame: FrameType | None) -> None:
        stopping.set()

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    run_intake(terminal.settings, name, stopping)
    return DONE


@command(
    short_help="Run an ingest or maintenance worker.",
    epilog=examples("scope-recall worker", "scope-recall worker --name night --maintenance"),
)
@click.option("--name", default="worker", show_default=True, help="Its name in logs and in `status`.")
@click.option("--maintenance", is_flag=True, help="Take maintenance jobs instead of ingest jobs.")
def worker(terminal: Terminal, name: str, maintenance: bool) -> int:
    """Take jobs until SIGTERM or Ctrl-C: live turns first, then backfill. Several may run."""
    os.nice(NICENESS)
    use_prefix(terminal.settings)
    from workers.worker import run_worker

    run_worker(terminal.settings, name, maintenance=maintenance)
    return DONE


@command(short_help="Run the scheduler of maintenance jobs.", epilog=examples("scope-recall scheduler"))
@click.option("--name", default="scheduler", show_default=True, help="Its name in logs.")
def scheduler(terminal: Terminal, name: str) -> int:
    """Enqueue maintenance jobs when they are due, until SIGTERM or Ctrl-C. Several may run."""
    use_prefix(terminal.settings)
    from workers.scheduler import run_scheduler
    from workers.supervision.tree_state import mark_ready

    run_scheduler(
        terminal.settings, connect(terminal.settings), on_ready=lambda: mark_ready(terminal.settings.data_dir, name)
    )
    return DONE
