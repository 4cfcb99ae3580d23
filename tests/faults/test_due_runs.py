"""Two schedulers, a worker and many people at once: each due run is done once, and no two runs of a job overlap."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import pytest

from producers.settings import Settings, load_settings
from system import Cli
from workers.schedule import next_times
from workers.stores.catalog import Catalog
from workers.stores.maintenance_runs import MaintenanceRun
from workers.supervision.redis_server import embedded_redis

pytestmark = pytest.mark.faults

PERIOD = 5
"""Seconds between two due times of each job."""
OFTEN = {"SCOPE_RECALL_INDEX_CRON": f"* * * * * */{PERIOD}", "SCOPE_RECALL_FORGET_CRON": f"* * * * * */{PERIOD}"}
JOBS = ("index", "forget")


@pytest.fixture
def cli(tmp_path: Path) -> Iterator[Cli]:
    data_dir = tmp_path / "data"
    with embedded_redis(load_settings(data_dir=data_dir)):
        yield Cli(data_dir, OFTEN)


@pytest.mark.parametrize(
    ("seconds", "people"),
    [
        pytest.param(15, 4),
        pytest.param(180, 20, marks=[pytest.mark.storm, pytest.mark.timeout(500)]),
    ],
)
def test_each_due_run_is_done_once_and_no_two_overlap(cli: Cli, seconds: float, people: int) -> None:
    parts = [
        cli.start("scheduler", "--name", "first"),
        cli.start("scheduler", "--name", "second"),
        cli.start("worker", "--name", "maintenance", "--maintenance"),
    ]
    settings = load_settings(data_dir=cli.data_dir)
    try:
        _wait_for_scheduled_runs(settings)
        began = datetime.now(UTC)
        asked = Counter(_ask(cli, people, time.monotonic() + seconds))
        ended = datetime.now(UTC)
        _wait_for_scheduled_runs(settings, since=ended)
    finally:
        for part in parts:
            part.terminate()
        said = [part.communicate(timeout=60)[0] for part in parts]
    assert [part.returncode for part in parts] == [0, 0, 0]
    assert not [words for words in said if b"Traceback" in words]
    catalog = Catalog.open(settings.catalog_location)
    runs = catalog.runs.history(limit=10_000)
    catalog.close()
    assert set(asked) <= {0, 2}, "done, or refused since another one was at it"
    for job in JOBS:
        due = _due_between(OFTEN[f"SCOPE_RECALL_{job.upper()}_CRON"], began, ended)
        done = Counter(run.due for run in runs if run.job == job and run.due and began < run.due <= ended)
        assert done == dict.fromkeys(due, 1)
        mine = sorted((run for run in runs if run.job == job), key=lambda run: run.started)
        assert {run.outcome for run in mine} == {"nothing"}
        assert not [pair for pair in pairwise(mine) if _overlap(*pair)]
        manual = sum(run.trigger == "manual" for run in mine)
        print(f"\n{job}: {len(due)} due, {sum(done.values())} done; {manual} more by hand, none overlapped")
    assert sum(run.trigger == "manual" for run in runs) == asked[0] > 0
    print(f"{asked[0] + asked[2]} commands, {asked[2]} refused while another run went on")


def _ask(cli: Cli, people: int, deadline: float) -> Iterator[int]:
    """The exit codes of `maintain run`, which as many people as that type at once, again and again."""
    while time.monotonic() < deadline:
        commands = [cli.start("maintain", "run", JOBS[number % len(JOBS)]) for number in range(people)]
        for command in commands:
            yield command.wait(100)
            assert command.stdout is not None
            command.stdout.close()


def _wait_for_scheduled_runs(settings: Settings, since: datetime | None = None) -> None:
    """Until a run of each job has ended that was due after `since`."""
    deadline = time.monotonic() + 90
    while True:
        if settings.data_dir.joinpath("catalog.db").exists():
            catalog = Catalog.open(settings.catalog_location, create=True)
            runs = [run for run in catalog.runs.history(limit=200) if run.due and run.ended]
            catalog.close()
            if {run.job for run in runs if since is None or (run.due and run.due > since)} >= set(JOBS):
                return
        assert time.monotonic() < deadline, "the schedulers or the worker do nothing"
        time.sleep(0.5)


def _due_between(cron: str, began: datetime, ended: datetime) -> list[datetime]:
    count = int((ended - began).total_seconds() // PERIOD) + 2
    return [due for due in next_times(cron, count, began) if due <= ended]


def _overlap(first: MaintenanceRun, second: MaintenanceRun) -> bool:
    assert first.ended is not None
    return second.started < first.ended
