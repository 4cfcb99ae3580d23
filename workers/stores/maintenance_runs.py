"""The record of every run of a maintenance job. Does I/O on the catalog."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

import sqlalchemy as sa
from sqlalchemy.engine import Engine, RowMapping

from producers.events import from_utc_microseconds, utc_microseconds
from workers.stores.engine import reading, write_transaction
from workers.stores.tables import maintenance_runs as runs

Trigger = Literal["scheduled", "on demand", "manual"]
RunOutcome = Literal["done", "nothing", "failed", "interrupted", "skipped"]
"""`nothing`: nothing was worth doing. `interrupted`: its process was killed. `skipped`: somebody else was at it."""
WENT_WELL: tuple[RunOutcome, ...] = ("done", "nothing")
KEPT = 1000
"""Runs of one job that are remembered."""


@dataclass(frozen=True)
class MaintenanceRun:
    """One run as it is remembered."""

    id: int
    job: str
    trigger: str
    due: datetime | None
    """When the schedule wanted it; None for a run that a person or a worker asked for."""
    holder: str
    started: datetime
    ended: datetime | None
    """None while it runs, and when it was interrupted: nobody knows when its process was killed."""
    outcome: str | None
    did: str | None
    before: dict[str, Any]
    after: dict[str, Any]
    error: str | None

    def as_json(self) -> dict[str, Any]:
        """For programs; times as ISO 8601."""
        shown = vars(self).copy()
        for name in ("due", "started", "ended"):
            shown[name] = shown[name].isoformat(timespec="milliseconds") if shown[name] else None
        return shown


class MaintenanceRuns:
    """The runs of one catalog; each call is one transaction."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def begin(self, job: str, trigger: Trigger, due: datetime | None = None) -> int | None:
        """Remember that a run begins; None when the run that is due then has been recorded before.

        For whoever holds the job's lease: runs of this job that never ended were killed, and are marked so.
        """
        now = time.time_ns() // 1000
        with write_transaction(self._engine) as connection:
            if due is not None:
                same = sa.select(runs.c.id).where(runs.c.job == job, runs.c.due_at_us == utc_microseconds(due))
                if connection.execute(same).first() is not None:
                    return None
            open_ = runs.update().where(runs.c.job == job, runs.c.outcome.is_(None))
            killed = "its process ended before it did: the next run does the work again"
            connection.execute(open_.values(outcome="interrupted", error=killed))
            ids = sa.select(runs.c.id).where(runs.c.job == job).order_by(runs.c.id.desc()).offset(KEPT).limit(1)
            oldest = connection.execute(ids).scalar()
            if oldest is not None:
                connection.execute(runs.delete().where(runs.c.job == job, runs.c.id <= oldest))
            statement = runs.insert().returning(runs.c.id)
            return int(connection.execute(statement, _row(job, trigger, due, now)).scalar_one())

    def interrupt_all(self, why: str) -> None:
        """Mark every run that has not ended; for whoever knows that their processes are gone."""
        with write_transaction(self._engine) as connection:
            open_ = runs.update().where(runs.c.outcome.is_(None))
            connection.execute(open_.values(outcome="interrupted", error=why))

    def skip(self, job: str, due: datetime, why: str) -> None:
        """Remember that the run that was due then did not happen."""
        now = time.time_ns() // 1000
        row = {**_row(job, "scheduled", due, now), "ended_at_us": now, "outcome": "skipped", "error": why}
        with write_transaction(self._engine) as connection:
            same = sa.select(runs.c.id).where(runs.c.job == job, runs.c.due_at_us == row["due_at_us"])
            if connection.execute(same).first() is None:
                connection.execute(runs.insert(), row)

    def end(
        self,
        number: int,
        outcome: RunOutcome,
        *,
        did: str | None = None,
        before: Mapping[str, Any] | None = None,
        after: Mapping[str, Any] | None = None,
        error: str | None = None,
    ) -> None:
        """Remember how it ended."""
        values = {
            "ended_at_us": time.time_ns() // 1000,
            "outcome": outcome,
            "did": did,
            "before": json.dumps(before or {}),
            "after": json.dumps(after or {}),
            "error": error,
        }
        with write_transaction(self._engine) as connection:
            connection.execute(runs.update().where(runs.c.id == number).values(values))

    def history(self, job: str | None = None, limit: int = 20) -> list[MaintenanceRun]:
        """The newest runs, newest first; of one job, or of all."""
        query = sa.select(runs).order_by(runs.c.id.desc()).limit(limit)
        with reading(self._engine) as connection:
            rows = connection.execute(query if job is None else query.where(runs.c.job == job)).mappings()
            return [_run(row) for row in rows]

    def running(self) -> MaintenanceRun | None:
        """The newest run that has not ended; its process may have been killed, until its job begins again."""
        query = sa.select(runs).where(runs.c.outcome.is_(None)).order_by(runs.c.id.desc()).limit(1)
        with reading(self._engine) as connection:
            row = connection.execute(query).mappings().first()
            return None if row is None else _run(row)

    def last(self, job: str, *, went_well: bool = False) -> MaintenanceRun | None:
        """The newest run that has ended and was not skipped; with `went_well` the newest that did not fail."""
        wanted = WENT_WELL if went_well else (*WENT_WELL, "failed", "interrupted")
        query = sa.select(runs).where(runs.c.job == job, runs.c.outcome.in_(wanted)).order_by(runs.c.id.desc())
        with reading(self._engine) as connection:
            row = connection.execute(query.limit(1)).mappings().first()
            return None if row is None else _run(row)


def _row(job: str, trigger: Trigger, due: datetime | None, now: int) -> dict[str, Any]:
    return {
        "job": job,
        "trigger": trigger,
        "due_at_us": utc_microseconds(due),
        "holder": f"pid {os.getpid()} on {socket.gethostname()}",
        "started_at_us": now,
    }


def _run(row: RowMapping) -> MaintenanceRun:
    started = from_utc_microseconds(row["started_at_us"])
    assert started is not None
    return MaintenanceRun(
        id=row["id"],
        job=row["job"],
        trigger=row["trigger"],
        due=from_utc_microseconds(row["due_at_us"]),
        holder=row["holder"],
        started=started,
        # Earlier versions gave an interrupted run the start of the next one as its end.
        ended=None if row["outcome"] == "interrupted" else from_utc_microseconds(row["ended_at_us"]),
        outcome=row["outcome"],
        did=row["did"],
        before=json.loads(row["before"] or "{}"),
        after=json.loads(row["after"] or "{}"),
        error=row["error"],
    )
