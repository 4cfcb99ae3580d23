"""The scheduler with real RQ and the real Redis."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import redis

from producers.settings import Settings, load_settings
from workers.queues import MAINTENANCE, rq_queue, use_prefix
from workers.schedule import maintenance_jobs
from workers.stores.catalog import Catalog
from workers.supervision.process import end
from workers.supervision.redis_server import embedded_redis

pytestmark = pytest.mark.integration

SCHEDULER = """
from producers.connection import connect
from producers.settings import load_settings
from workers.queues import use_prefix

settings = load_settings()
use_prefix(settings)
from workers.scheduler import run_scheduler

run_scheduler(settings, connect(settings), on_ready=lambda: print("ready", flush=True))
"""


@pytest.fixture
def settings(tmp_path: Path) -> Iterator[Settings]:
    settings = load_settings(data_dir=tmp_path)
    with embedded_redis(settings):
        yield settings


def test_two_schedulers_enqueue_a_due_run_once_with_json_arguments(settings: Settings) -> None:
    use_prefix(settings)
    from workers.scheduler import build_scheduler

    jobs = maintenance_jobs(settings.model_copy(update={"index_cron": "0 0 1 1 *"}))  # not due while this test runs
    due = datetime(2026, 1, 1, tzinfo=UTC)
    with redis.Redis.from_url(settings.redis_location) as client:
        schedulers = [build_scheduler(jobs, settings, client) for _ in range(2)]
        for scheduler in schedulers:
            assert scheduler.enqueue_jobs() == []
            scheduler.get_jobs()[0].next_enqueue_time = due
            assert len(scheduler.enqueue_jobs()) == 1
            assert scheduler.get_jobs()[0].next_enqueue_time != due
        [run] = rq_queue(MAINTENANCE, client, settings).get_jobs()
        assert (run.func_name, run.args) == ("workers.jobs.run_maintenance", ["index", "2026-01-01T00:00:00+00:00"])
        assert run.id == "index-20260101T000000Z"
        assert client.ttl(run.key) > 0
        assert client.exists(f"scope-recall:rq:job:{run.id}")


def test_jobs_that_missed_two_runs_and_more_are_run_once_when_a_scheduler_starts(settings: Settings) -> None:
    use_prefix(settings)
    from workers.scheduler import build_scheduler, missed_runs

    jobs = maintenance_jobs(settings)
    now = datetime.now(UTC)
    assert missed_runs(jobs, settings, now) == {}, "nothing is stored yet"
    with closing(Catalog.open(settings.catalog_location, create=True)) as catalog:
        for name in ("retention", "index"):
            number = catalog.runs.begin(name, "manual")
            assert number is not None
            catalog.runs.end(number, "nothing")
    assert missed_runs(jobs, settings, now) == {}
    later = now + timedelta(days=30)
    missed = missed_runs(jobs, settings, later)
    assert missed.keys() == {"retention", "index"}, "those that never ran owe nothing"
    assert all(later - timedelta(days=1) <= due <= later for due in missed.values())
    with redis.Redis.from_url(settings.redis_location) as client:
        for _ in range(2):
            build_scheduler(jobs, settings, client).enqueue_missed(missed)
        runs = rq_queue(MAINTENANCE, client, settings).get_jobs()
        assert sorted(run.args[0] for run in runs) == ["index", "retention"]


def test_a_scheduler_outlives_a_redis_that_is_away_and_stops_on_sigterm(tmp_path: Path) -> None:
    settings = load_settings(data_dir=tmp_path)
    log = tmp_path / "scheduler.log"
    environment = {**os.environ, **settings.as_environment()}
    with log.open("wb") as out:
        process = subprocess.Popen([sys.executable, "-c", SCHEDULER], env=environment, stdout=out, stderr=out)
    try:
        _wait_for(log, "redis_away", process)
        with embedded_redis(settings), redis.Redis.from_url(settings.redis_location) as client:
            deadline = time.monotonic() + 15
            while not client.zcard("scope-recall:rq:cron_schedulers"):
                assert time.monotonic() < deadline
                time.sleep(0.1)
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=10) == 0
            assert not client.zcard("scope-recall:rq:cron_schedulers")
        assert "Traceback" not in log.read_text()
    finally:
        end([process], grace=0)


def _wait_for(log: Path, text: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 15
    while text not in log.read_text():
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.1)
