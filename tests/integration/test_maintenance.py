"""Maintenance runs on a real Redis and catalog: what is recorded, refused, shown, and done once."""

from __future__ import annotations

import json
import os
import socket
import threading
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from click.testing import CliRunner

from producers.connection import connect
from producers.errors import Busy, NotReady, StoreUnavailable, UsageError
from producers.settings import Settings
from stepped import Stepped, turn
from workers.commands.maintain import maintain
from workers.maintenance import run as running
from workers.maintenance.job import JobContext, Outcome
from workers.maintenance.lease import exclusive
from workers.maintenance.overview import overview
from workers.maintenance.run import run_job
from workers.queues import MAINTENANCE, rq_queue, use_prefix
from workers.schedule import NAMES
from workers.stores.catalog import Catalog

pytestmark = pytest.mark.integration

NOON = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)


def history(settings: Settings, *arguments: str) -> tuple[int, list[dict[str, Any]]]:
    done = CliRunner().invoke(
        maintain, ["history", *arguments, "--json", "--data-dir", str(settings.data_dir)], catch_exceptions=False
    )
    return done.exit_code, json.loads(done.stdout)["runs"]


def replace_index(monkeypatch: pytest.MonkeyPatch, job: Any) -> None:
    monkeypatch.setitem(running.JOBS, "index", job)


def test_each_scheduled_name_has_a_job(settings: Settings) -> None:
    assert tuple(running.JOBS) == NAMES
    assert {f"{name}_cron" for name in NAMES} == {name for name in Settings.model_fields if name.endswith("_cron")}


def test_a_run_is_in_the_history_with_trigger_outcome_and_figures(system: Stepped) -> None:
    system.push(turn("the heron waits"))
    system.settle()
    report = run_job("index", system.settings, system.client)
    assert (report.outcome, report.did, report.before["rows"]) == ("nothing", None, 1)
    code, runs = history(system.settings)
    assert code == 0
    assert [(run["job"], run["trigger"], run["outcome"], run["before"]["rows"]) for run in runs] == [
        ("index", "manual", "nothing", 1)
    ]


def test_the_history_names_who_runs_a_job_and_gives_an_interrupted_run_no_time(system: Stepped) -> None:
    system.push(turn("the heron waits"))
    system.settle()
    with closing(Catalog.open(system.settings.catalog_location)) as catalog:
        catalog.runs.begin("index", "manual")
        catalog.runs.begin("index", "manual")
    environment = {**system.settings.as_environment(), "COLUMNS": "200"}
    shown = CliRunner().invoke(maintain, ["history"], env=environment).stdout.splitlines()
    (running,) = [line for line in shown if "running" in line]
    (interrupted,) = [line for line in shown if "interrupted" in line]
    assert f"by pid {os.getpid()} on {socket.gethostname()}" in running
    assert "unknown" in interrupted
    assert " s " not in interrupted.partition("manual")[0]
    assert [run["ended"] for run in history(system.settings)[1]] == [None, None]


def test_what_a_job_raises_is_recorded_without_what_a_turn_says(
    shared_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unavailable(context: JobContext) -> Outcome:
        raise StoreUnavailable("the disk is full")

    def broken(context: JobContext) -> Outcome:
        raise ValueError("the heron waits")

    def unfinished(context: JobContext) -> Outcome:
        return Outcome("half of it", problem="the other half is left")

    with connect(shared_settings) as client:
        replace_index(monkeypatch, unavailable)
        with pytest.raises(StoreUnavailable):
            run_job("index", shared_settings, client)
        replace_index(monkeypatch, unfinished)
        with pytest.raises(NotReady, match="job index: the other half is left"):
            run_job("index", shared_settings, client)
        replace_index(monkeypatch, broken)
        with pytest.raises(ValueError, match="heron"):
            run_job("index", shared_settings, client)
    code, runs = history(shared_settings, "index")
    assert code == 1
    assert [(run["outcome"], run["error"]) for run in runs] == [
        ("failed", "ValueError"),
        ("failed", "the other half is left"),
        ("failed", "the disk is full"),
    ]


def test_a_scheduled_run_is_done_once_waits_for_another_and_leaves_a_trace_when_it_cannot(
    shared_settings: Settings,
) -> None:
    with connect(shared_settings) as client:
        first = run_job("index", shared_settings, client, trigger="scheduled", due=NOON)
        again = run_job("index", shared_settings, client, trigger="scheduled", due=NOON)
        assert (first.outcome, again.outcome) == ("nothing", "skipped")
        later = NOON + timedelta(minutes=5)
        held = threading.Event()
        release = threading.Event()

        def hold() -> None:
            with exclusive(client, shared_settings, "index"):
                held.set()
                release.wait(20)

        holder = threading.Thread(target=hold)
        holder.start()
        assert held.wait(20)
        with pytest.raises(Busy):
            run_job("index", shared_settings, client, trigger="scheduled", due=NOON + timedelta(minutes=10))
        threading.Timer(0.5, release.set).start()
        waited = run_job("index", shared_settings, client, trigger="scheduled", due=later, patience=20)
        holder.join()
        assert waited.outcome == "nothing"
    _, runs = history(shared_settings)
    assert [(run["due"][11:16], run["outcome"]) for run in runs] == [
        ("12:05", "nothing"),
        ("12:10", "skipped"),
        ("12:00", "nothing"),
    ]


def test_the_worker_takes_a_scheduled_run_from_the_queue_and_keeps_no_traceback_of_a_failure(
    shared_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_prefix(shared_settings)
    from rq import SimpleWorker
    from rq.serializers import JSONSerializer

    from workers.runtime import Runtime, install

    def unavailable(context: JobContext) -> Outcome:
        raise StoreUnavailable("the disk is full")

    replace_index(monkeypatch, unavailable)
    with connect(shared_settings) as client:
        install(Runtime(shared_settings, client, "maintenance", threading.Event(), None, None))
        queue = rq_queue(MAINTENANCE, client, shared_settings)
        queue.enqueue("workers.jobs.run_maintenance", args=("index", NOON.isoformat()))
        queue.enqueue("workers.jobs.run_maintenance", args=("forget",))
        SimpleWorker([queue], connection=client, serializer=JSONSerializer).work(burst=True, logging_level="ERROR")
        assert queue.failed_job_registry.count == 0
    _, runs = history(shared_settings)
    assert [(run["job"], run["trigger"], run["outcome"]) for run in runs] == [
        ("forget", "on demand", "nothing"),
        ("index", "scheduled", "failed"),
    ]


def test_status_names_a_job_that_failed_and_one_that_did_not_run_for_two_periods(shared_settings: Settings) -> None:
    catalog = Catalog.open(shared_settings.catalog_location, create=True)
    for job in NAMES:
        number = catalog.runs.begin(job, "manual")
        assert number is not None
        catalog.runs.end(number, "nothing")
    now = datetime.now(UTC)
    figures, degraded = overview(catalog, shared_settings, since=None, now=now)
    assert degraded == []
    assert all(figures[job]["last_success"] and figures[job]["next"] > now.isoformat() for job in NAMES)
    late = now + timedelta(minutes=10)  # the second time of every five minutes, the first of every ten
    told = overview(catalog, shared_settings, since=None, now=late)[1]
    assert {line.split(" since")[0] for line in told} == {
        "maintenance job index has not run",
        "maintenance job reembed has not run",
    }
    assert overview(catalog, shared_settings, since=late, now=late)[1] == []  # it was off meanwhile
    number = catalog.runs.begin("forget", "manual")
    assert number is not None
    told = overview(catalog, shared_settings, since=None, now=late)[1]
    assert all("it waits for forget, begun at" in line for line in told)
    assert len(told) == 2
    catalog.runs.end(number, "failed", error="the disk is full")
    assert not any("forget has not run" in line for line in overview(catalog, shared_settings, since=None, now=late)[1])
    long = catalog.runs.begin("index", "manual")
    assert long is not None
    told = overview(catalog, shared_settings, since=None, now=late)[1]
    assert any(
        "job index takes longer than its schedule '*/5 * * * *' leaves: it was begun at" in line for line in told
    )
    assert any("job reembed has not run" in line and "it waits for index" in line for line in told)
    catalog.runs.end(long, "nothing")
    figures, [failed] = overview(catalog, shared_settings, since=None, now=now)
    assert figures["forget"]["last_outcome"] == "failed"
    assert "maintenance job forget failed at" in failed
    assert "the disk is full; it runs again by itself, or with `scope-recall maintain run forget`" in failed
    catalog.close()


def test_unknown_jobs_and_data_dirs_are_refused_by_name(settings: Settings) -> None:
    with pytest.raises(UsageError, match="no maintenance job 'nope'; there are: index,"):
        run_job("nope", settings, connect(settings))
    with pytest.raises(NotReady, match="no data dir at"):
        run_job("index", settings, connect(settings))
    assert not settings.data_dir.exists()
