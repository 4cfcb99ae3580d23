"""`scope-recall maintain list|run`: the maintenance jobs."""

from __future__ import annotations

import click
from rich.table import Table

from producers.connection import connect
from producers.terminal import DONE, HELP_OPTIONS, Terminal, command, examples
from workers.maintenance.run import run_job
from workers.schedule import maintenance_jobs, next_times

SHOWN_TIMES = 3


@click.group(short_help="List or run the maintenance jobs.", context_settings=HELP_OPTIONS)
def maintain() -> None:
    """Jobs that keep the stores fast; the scheduler runs them when they are due."""


@command(name="list", short_help="Show the jobs and when they run next.", epilog=examples("scope-recall maintain list"))
def list_(terminal: Terminal) -> int:
    """Show each job, its schedule and its next three times."""
    jobs = maintenance_jobs(terminal.settings)
    rows = [(job.name, job.cron, [t.isoformat() for t in next_times(job.cron, SHOWN_TIMES)]) for job in jobs]
    if terminal.json:
        terminal.emit({"jobs": [{"name": name, "cron": cron, "next": times} for name, cron, times in rows]})
        return DONE
    table = Table("job", "schedule", "next times")
    for name, cron, times in rows:
        table.add_row(name, cron, "\n".join(times))
    terminal.out.print(table)
    return DONE


@command(short_help="Run one job now.", epilog=examples("scope-recall maintain run index"))
@click.argument("name")
def run(terminal: Terminal, name: str) -> int:
    """Run the job NAME in this process and show its figures. Refused while somebody else runs it."""
    with connect(terminal.settings) as client:
        figures = run_job(name, terminal.settings, client)
    if terminal.json:
        terminal.emit({"job": name, **figures})
        return DONE
    table = Table("figure", "value", title=name)
    for key, value in figures.items():
        table.add_row(key, str(value))
    terminal.out.print(table)
    return DONE


maintain.add_command(list_)
maintain.add_command(run)
