"""`scope-recall maintain list|run|history`: the maintenance jobs."""

from __future__ import annotations

import click
from rich.table import Table
from rich.text import Text

from producers.connection import connect
from producers.errors import UsageError
from producers.terminal import DONE, HELP_OPTIONS, IN_PART, Terminal, command, examples
from workers.maintenance.run import JOBS, run_job
from workers.schedule import maintenance_jobs, next_times
from workers.stores.catalog import Catalog
from workers.stores.maintenance_runs import MaintenanceRun
from workers.temporary import keep_in_data_dir

SHOWN_TIMES = 3


@click.group(short_help="List, run or look back at the maintenance jobs.", context_settings=HELP_OPTIONS)
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
    keep_in_data_dir(terminal.settings)
    with connect(terminal.settings) as client, terminal.err.status(f"running {name}"):
        report = run_job(name, terminal.settings, client)
    if terminal.json:
        terminal.emit(report.as_json())
        return DONE
    terminal.say(f"{name}: {report.did or 'nothing was worth doing'} ({report.seconds:.1f} s)")
    table = Table("figure", "before", "after")
    for key in report.before | report.after:
        table.add_row(key.replace("_", " "), _shown(report.before.get(key)), _shown(report.after.get(key)))
    if table.row_count:
        terminal.out.print(table)
    return DONE


@command(
    short_help="Show what was run, and what came of it.",
    epilog=examples("scope-recall maintain history", "scope-recall maintain history index -n 5 --json"),
)
@click.argument("name", required=False)
@click.option("-n", "limit", type=click.IntRange(1, 1000), default=20, show_default=True, help="Runs to show.")
def history(terminal: Terminal, name: str | None, limit: int) -> int:
    """Show the newest runs of the job NAME, or of all. Exit 1 when the last run of one of them failed."""
    if name is not None and name not in JOBS:
        raise UsageError(f"no maintenance job {name!r}; there are: {', '.join(JOBS)}")
    catalog = Catalog.open(terminal.settings.catalog_location)
    try:
        found = catalog.runs.history(name, limit)
        last = [catalog.runs.last(job) for job in ([name] if name else JOBS)]
    finally:
        catalog.close()
    if terminal.json:
        terminal.emit({"runs": [run.as_json() for run in found]})
    else:
        table = Table("job", "started", "took", "trigger", "outcome", "what it did")
        for run in found:
            started = run.started.astimezone().isoformat(" ", "seconds")
            said = run.error or run.did or ("" if run.outcome else f"by {run.holder}")
            table.add_row(run.job, started, _took(run), run.trigger, run.outcome or "running", Text(said))
        terminal.out.print(table)
    return IN_PART if any(run and run.outcome == "failed" for run in last) else DONE


def _took(run: MaintenanceRun) -> str:
    if run.ended is None:
        return "unknown" if run.outcome else ""
    return f"{(run.ended - run.started).total_seconds():.1f} s"


def _shown(value: object) -> str:
    return "" if value is None else f"{value:,}" if isinstance(value, int) else str(value)


maintain.add_command(list_)
maintain.add_command(run)
maintain.add_command(history)
