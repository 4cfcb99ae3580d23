"""Runs one maintenance job by name, unless somebody else is running it. Does I/O."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import redis

from producers.errors import UsageError
from producers.logs import get_logger
from producers.settings import Settings
from workers.maintenance.forget import resume
from workers.maintenance.index import keep_indexes
from workers.maintenance.lease import exclusive
from workers.stores.catalog import Catalog
from workers.stores.vectors import VectorStore

JOBS = ("index", "forget")

log = get_logger(__name__)


def run_job(name: str, settings: Settings, client: redis.Redis) -> dict[str, Any]:
    """Run `name` now and return its figures.

    Raises `UsageError` for a job that does not exist, `Busy` when it is being run already.
    """
    if name not in JOBS:
        raise UsageError(f"no maintenance job {name!r}; there are: {', '.join(JOBS)}")
    with exclusive(client, settings, name):
        figures = _index(settings) if name == "index" else _finish_forgets(settings)
    log.info("maintenance_done", job=name, **figures)
    return figures


def _index(settings: Settings) -> dict[str, Any]:
    catalog = Catalog.open(settings.catalog_location)
    try:
        active = catalog.active_space()
        if active is None:
            return {"outcome": "nothing stored yet"}
        with catalog.locks.maintaining():
            return keep_indexes(VectorStore(settings.vectors_location), active.space, now=datetime.now(UTC))
    finally:
        catalog.close()


def _finish_forgets(settings: Settings) -> dict[str, Any]:
    reports = resume(settings)
    return {"finished": sum(report.verified for report in reports), "left": sum(not one.verified for one in reports)}
