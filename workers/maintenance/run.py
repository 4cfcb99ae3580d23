"""Runs one maintenance job by name, unless somebody else is running it, and records what came of it. Does I/O."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import redis

from producers.errors import Busy, NotReady, ScopeRecallError, UsageError
from producers.logs import get_logger
from producers.settings import Settings
from workers.maintenance.compact import keep_compact
from workers.maintenance.forget import finish_forgets
from workers.maintenance.index import keep_every_index
from workers.maintenance.job import Job, JobContext
from workers.maintenance.lease import exclusive
from workers.maintenance.reembed import keep_spaces
from workers.stores.catalog import Catalog
from workers.stores.maintenance_runs import RunOutcome, Trigger

JOBS: dict[str, Job] = {
    "index": keep_every_index,
    "compact": keep_compact,
    "forget": finish_forgets,
    "reembed": keep_spaces,
}
POLL = 0.1
"""Seconds between two looks at a lease that is waited for."""

log = get_logger(__name__)


@dataclass(frozen=True)
class RunReport:
    """A run that has ended well."""

    job: str
    outcome: RunOutcome
    did: str | None
    before: dict[str, Any]
    after: dict[str, Any]
    seconds: float

    def as_json(self) -> dict[str, Any]:
        return vars(self).copy()


def run_job(
    name: str,
    settings: Settings,
    client: redis.Redis,
    *,
    trigger: Trigger = "manual",
    due: datetime | None = None,
    patience: float = 0.0,
) -> RunReport:
    """Run `name` now and record it in the catalog. `due`: the scheduled time; that run is done once, by whoever.

    Waits up to `patience` seconds for a run that goes on. Raises `UsageError` for a job that does not exist, `Busy`
    when it is still being run then, `NotReady` when the job leaves a problem, and what the job raises.
    """
    if name not in JOBS:
        raise UsageError(f"no maintenance job {name!r}; there are: {', '.join(JOBS)}")
    if not settings.data_dir.is_dir() and settings.catalog_url is None:
        raise NotReady(f"no data dir at {settings.data_dir}: start `scope-recall up`, or name another with --data-dir")
    catalog = Catalog.open(settings.catalog_location, create=True)
    deadline = time.monotonic() + patience
    try:
        while True:
            try:
                with exclusive(client, settings, name) as lease:
                    return _record(name, JobContext(settings, client, catalog, lease), trigger, due)
            except Busy as busy:
                if time.monotonic() >= deadline:
                    if due is not None:  # a run that does not happen leaves a trace; a person is told at once
                        catalog.runs.skip(name, due, str(busy))
                    raise
            time.sleep(POLL)
    finally:
        catalog.close()


def _record(name: str, context: JobContext, trigger: Trigger, due: datetime | None) -> RunReport:
    runs = context.catalog.runs
    number = runs.begin(name, trigger, due)
    if number is None:
        return RunReport(name, "skipped", "this run was done already", {}, {}, 0.0)
    started = time.monotonic()
    try:
        found = JOBS[name](context)
    except ScopeRecallError as error:
        runs.end(number, "failed", error=str(error))
        raise
    except Exception as error:
        runs.end(number, "failed", error=type(error).__name__)  # its text may quote a turn
        raise
    outcome: RunOutcome = "failed" if found.problem else "done" if found.did else "nothing"
    runs.end(number, outcome, did=found.did, before=found.before, after=found.after, error=found.problem)
    report = RunReport(
        name, outcome, found.did, dict(found.before), dict(found.after), round(time.monotonic() - started, 3)
    )
    log.info("maintenance_ended", job=name, outcome=outcome, did=found.did, seconds=report.seconds)
    if found.problem:
        raise NotReady(f"job {name}: {found.problem}")
    return report
