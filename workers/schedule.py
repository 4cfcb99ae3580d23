"""The scheduled jobs: which they are and when they are due. Pure; `workers/scheduler.py` enqueues them.

Cron fields match the host's local time, as in RQ. Any number of schedulers may run: a job's id is its name and its due
time, and RQ refuses a second job of one id.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from croniter import CroniterError, croniter  # type: ignore[import-untyped]  # comes with rq, without types

from producers.errors import SettingsError
from producers.settings import Settings

NAMES = ("index", "compact", "forget", "retention", "reconcile", "reembed")
"""Of each there is a setting NAME_cron, and a function in `maintenance.run.JOBS`."""
EXAMPLE = "*/5 * * * *"
_NUMBERS = re.compile(r"(?<!\w)(\d+)-(\d+)(?!\w)")
"""A range of numbers; one of names may go round the week or the year, as `fri-mon` does."""
SHORTEST_WAIT = timedelta(minutes=1)
"""Of a job that is due every few seconds the worker may be some runs behind, and still does each."""


@dataclass(frozen=True)
class MaintenanceJob:
    """A job that the scheduler enqueues on the maintenance queue, with its name and its due time as arguments."""

    name: str
    cron: str
    """Five fields: minute, hour, day, month, weekday; a sixth is seconds."""
    function: str = "workers.jobs.run_maintenance"
    """Dotted name; wire format, like everything an RQ job holds."""


def maintenance_jobs(settings: Settings) -> list[MaintenanceJob]:
    """The jobs as the settings have them. Raises `SettingsError` naming the setting that is no cron expression."""
    settings_of = {name: f"{name}_cron" for name in NAMES}
    return [
        MaintenanceJob(name, checked_cron(setting, getattr(settings, setting))) for name, setting in settings_of.items()
    ]


def checked_cron(setting: str, cron: str) -> str:
    """`cron` itself. Raises `SettingsError` when it is none, or when no date ever matches it."""
    try:
        next_times(cron, 1)
    except (CroniterError, ValueError) as error:
        raise SettingsError(
            f"setting {setting} = {cron!r} is not a cron expression that comes due: {error}. "
            f"It takes five fields, minute hour day month weekday, such as {EXAMPLE!r}; a sixth is seconds"
        ) from None
    return cron


def next_times(cron: str, n: int, after: datetime | None = None) -> list[datetime]:
    """The next `n` due times after `after` (aware; default now), in UTC. Raises croniter's errors."""
    if len(cron.split()) not in (5, 6) and not cron.startswith("@"):
        raise ValueError(f"{len(cron.split())} fields")
    if re.search(r"(?<![A-Za-z])[Rr](?![A-Za-z])", cron):
        raise ValueError("R stands for a random time, another one each time it is read")
    for low, high in _NUMBERS.findall(cron):
        if int(low) >= int(high):  # which croniter takes for a way round, or for all there are
            raise ValueError(
                f"the range {low}-{high} does not go from a lower number to a higher one; "
                "what goes round takes two, such as 22-23,0-2"
            )
    after = after or datetime.now(UTC)
    matches = croniter(cron, after.astimezone().replace(tzinfo=None))
    times: list[datetime] = []
    while len(times) < n:
        due = matches.get_next(datetime).astimezone(UTC)
        if due > after:  # in the hour that a clock change repeats, a local time means its first occurrence
            times.append(due)
    return times


def last_due(cron: str, before: datetime) -> datetime:
    """The last due time up to `before` (aware), in UTC. Raises croniter's errors."""
    due: datetime = croniter(cron, before.astimezone().replace(tzinfo=None)).get_prev(datetime)
    return due.astimezone(UTC)


def job_id(name: str, due: datetime) -> str:
    """The id of the run of `name` that is due at `due`; the same from every scheduler."""
    return f"{name}-{due.astimezone(UTC):%Y%m%dT%H%M%SZ}"


def time_to_live(cron: str, due: datetime) -> timedelta:
    """How long a run may wait for a worker: until the next is due, so that an outage leaves one run, not hundreds."""
    return max(next_times(cron, 1, due)[0] - due, SHORTEST_WAIT)


def overdue(cron: str, reference: datetime, now: datetime) -> bool:
    """Whether two due times have passed since `reference`, a run that went well or the start of the system. Pure."""
    return next_times(cron, 2, reference)[1] < now
