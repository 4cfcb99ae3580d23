"""The record of maintenance runs over a real database."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest

from workers.stores import maintenance_runs
from workers.stores.catalog import Catalog
from workers.stores.maintenance_runs import MaintenanceRuns

pytestmark = pytest.mark.contract

NOON = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)


@pytest.fixture
def runs(catalog_url: str) -> Iterator[MaintenanceRuns]:
    opened = Catalog.open(catalog_url, create=True)
    yield opened.runs
    opened.close()


def begin(runs: MaintenanceRuns, job: str = "index", due: datetime | None = None) -> int:
    number = runs.begin(job, "scheduled" if due else "manual", due)
    assert number is not None
    return number


def test_a_run_is_remembered_with_its_figures(runs: MaintenanceRuns) -> None:
    number = begin(runs, due=NOON)
    [running] = runs.history()
    assert (running.outcome, running.ended, running.due, running.trigger) == (None, None, NOON, "scheduled")
    runs.end(number, "done", did="joined 3 fragments", before={"fragments": 3}, after={"fragments": 1})
    [ended] = runs.history("index")
    assert (ended.outcome, ended.did, ended.before, ended.after) == (
        "done",
        "joined 3 fragments",
        {"fragments": 3},
        {"fragments": 1},
    )
    assert ended.ended is not None
    assert timedelta() <= ended.ended - ended.started < timedelta(minutes=1)
    assert ended.as_json()["due"] == "2026-01-31T12:00:00.000+00:00"
    assert runs.history("forget") == []


def test_a_due_time_is_run_once_however_many_ask(runs: MaintenanceRuns) -> None:
    with ThreadPoolExecutor(8) as pool:
        numbers = list(pool.map(lambda _: runs.begin("index", "scheduled", NOON), range(24)))
    assert len([number for number in numbers if number is not None]) == 1
    assert runs.begin("index", "scheduled", NOON + timedelta(minutes=5)) is not None
    assert runs.begin("forget", "scheduled", NOON) is not None
    assert runs.begin("index", "manual") is not None
    assert runs.begin("index", "manual") is not None


def test_a_run_that_never_ended_was_interrupted_as_soon_as_the_next_begins(runs: MaintenanceRuns) -> None:
    begin(runs)
    begin(runs, "forget")
    runs.end(begin(runs), "nothing")
    assert [(run.job, run.outcome) for run in runs.history()] == [
        ("index", "nothing"),
        ("forget", None),
        ("index", "interrupted"),
    ]


def test_nobody_knows_when_an_interrupted_run_ended(runs: MaintenanceRuns) -> None:
    begin(runs)
    runs.end(begin(runs), "nothing")
    begin(runs)
    running = runs.running()
    assert running is not None
    assert running.outcome is None
    runs.interrupt_all("restored")
    assert runs.running() is None
    last, _, first = runs.history()
    assert (first.outcome, first.ended, first.as_json()["ended"]) == ("interrupted", None, None)
    assert (last.outcome, last.ended, last.error) == ("interrupted", None, "restored")
    begin(runs)
    assert [run.error for run in runs.history()][1] == "restored", "it is told once"


def test_the_last_run_tells_failure_from_success_and_leaves_skipped_ones_out(runs: MaintenanceRuns) -> None:
    assert runs.last("index") is None
    runs.end(begin(runs), "done", did="first")
    runs.end(begin(runs), "failed", error="the disk is full")
    runs.skip("index", NOON, "somebody else was at it")
    runs.skip("index", NOON, "told twice")
    last, good = runs.last("index"), runs.last("index", went_well=True)
    assert last is not None
    assert (last.outcome, last.error) == ("failed", "the disk is full")
    assert good is not None
    assert good.did == "first"
    assert [run.outcome for run in runs.history()] == ["skipped", "failed", "done"]


def test_old_runs_of_a_job_are_forgotten(runs: MaintenanceRuns, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintenance_runs, "KEPT", 3)
    runs.end(begin(runs, "forget"), "done")
    for _ in range(6):
        runs.end(begin(runs), "nothing")
    assert len(runs.history("index", 100)) == 4
    assert len(runs.history("forget", 100)) == 1
