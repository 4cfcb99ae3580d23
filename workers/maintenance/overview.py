"""How the maintenance jobs are doing: last success, next time, and what is wrong. Does I/O; reads only."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from producers.settings import Settings
from workers.schedule import maintenance_jobs, next_times, overdue
from workers.stores.catalog import Catalog


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
        starts = [moment for moment in (good.ended if good else None, since) if moment is not None]
        if starts and overdue(job.cron, max(starts), now):
            degraded.append(
                f"maintenance job {job.name} has not run since {max(starts):%Y-%m-%d %H:%M:%S} UTC, though its "
                f"schedule is {job.cron!r}: {_cause(catalog)}see that a scheduler and a maintenance worker are running"
            )
    return figures, degraded


def _cause(catalog: Catalog) -> str:
    """One worker does one job at a time, so that a long one makes the others late."""
    running = catalog.runs.running()
    if running is None:
        return ""
    return f"it waits for {running.job}, begun at {running.started:%H:%M:%S} UTC by {running.holder}; if that is gone, "
