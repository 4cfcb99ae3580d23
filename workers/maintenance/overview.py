"""How the maintenance jobs are doing: last success, next time, and what is wrong. Does I/O; reads only."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from producers.settings import Settings
from workers.schedule import MaintenanceJob, maintenance_jobs, next_times, overdue
from workers.stores.catalog import Catalog
from workers.stores.maintenance_runs import MaintenanceRun


def overview(
    catalog: Catalog, settings: Settings, *, since: datetime | None, now: datetime
) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """(figures by job, what is degraded). `since`: when this host's `up` was started; None when none runs here.

    Raises `SettingsError` for a schedule that is none.
    """
    figures = {}
    degraded = []
    for job in maintenance_jobs(settings):
        last, good = catalog.runs.last(job.name), catalog.runs.last(job.name, went_well=True)
        figures[job.name] = {
            "cron": job.cron,
            "next": next_times(job.cron, 1, now)[0].isoformat(),
            "last_success": good.ended.isoformat(timespec="seconds") if good and good.ended else None,
            "last_outcome": last.outcome if last else None,
        }
        if last is not None and last.outcome == "failed":
            degraded.append(
                f"maintenance job {job.name} failed at {last.started:%Y-%m-%d %H:%M:%S} UTC: {last.error}; it runs "
                f"again by itself, or with `scope-recall maintain run {job.name}`"
            )
        # A system that was off owes nothing for the time before its start.
        ran = (last.ended or last.started) if last else None  # one that failed has run, and is told as failed
        starts = [moment for moment in (ran, since) if moment is not None]
        if starts and overdue(job.cron, max(starts), now):
            degraded.append(_late(job, max(starts), catalog.runs.running()))
    return figures, degraded


def _late(job: MaintenanceJob, last: datetime, running: MaintenanceRun | None) -> str:
    """One worker does one job at a time, so that a long one makes the others late, and itself."""
    see = "see that a scheduler and a maintenance worker are running"
    if running is not None and running.job == job.name:
        return (
            f"maintenance job {job.name} takes longer than its schedule {job.cron!r} leaves: it was begun at "
            f"{running.started:%H:%M:%S} UTC by {running.holder}, and all else goes on; if that is gone, {see}"
        )
    late = f"maintenance job {job.name} has not run since {last:%Y-%m-%d %H:%M:%S} UTC, though its schedule is "
    if running is None:
        return f"{late}{job.cron!r}: {see}"
    cause = f"it waits for {running.job}, begun at {running.started:%H:%M:%S} UTC by {running.holder}"
    return f"{late}{job.cron!r}: {cause}; if that is gone, {see}"
