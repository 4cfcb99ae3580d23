"""`scope-recall up`: the whole system as one process tree, in the foreground."""

from __future__ import annotations

import os

import click

from producers.connection import safe_location
from producers.terminal import DONE, Terminal, command, examples
from workers.supervision.child import ChildEvent, default_specs
from workers.supervision.supervisor import Supervisor


@command(
    short_help="Run the whole system in one process tree.",
    epilog=examples(
        "scope-recall up", "scope-recall up --workers 2 --data-dir ./memory", "scope-recall status --watch"
    ),
)
@click.option("--workers", type=click.IntRange(1, 64), help="Ingest workers to start.")
@click.option("--serve/--no-serve", default=None, help="Run the query service too.  [default: serve]")
@click.option(
    "--port", "api_port", type=click.IntRange(0, 65535), help="Port of the query service; 0 picks a free one."
)
def up(terminal: Terminal) -> int:
    """Run Redis (unless redis_url names one), intake, workers, scheduler and query service until Ctrl-C or SIGTERM.

    A process that dies is started again. Everything is kept in the data dir; `status` shows how it is doing.
    """
    settings = terminal.settings

    def say(event: ChildEvent) -> None:
        if terminal.json:
            terminal.emit({"process": event.name, "event": event.what, "detail": event.detail})
        else:
            terminal.note(f"{event.name}: {event.what} {event.detail}")

    share_cores(settings.workers)
    supervisor = Supervisor(settings, default_specs(settings), on_event=say)
    if not terminal.json:
        terminal.note(f"data dir {settings.data_dir}, redis {safe_location(settings)}; Ctrl-C stops")
    supervisor.run()
    return DONE


def share_cores(workers: int) -> None:
    """Give each worker its share of the cores: encoders that each take all of them slow one another down."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, cores // workers)))
