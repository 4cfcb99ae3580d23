"""One run of a maintenance job at a time, on a real Redis: whoever starts it, and whatever becomes of the holder."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import redis
from click.testing import CliRunner

from producers.connection import connect
from producers.errors import Busy, StreamUnavailable
from producers.settings import Settings
from workers.commands.maintain import maintain
from workers.maintenance import lease as job_lease
from workers.maintenance.lease import exclusive
from workers.maintenance.run import run_job
from workers.queues import MAINTENANCE, rq_queue, use_prefix

pytestmark = pytest.mark.integration


@pytest.fixture
def client(shared_settings: Settings) -> Iterator[redis.Redis]:
    with connect(shared_settings) as client:
        yield client


@pytest.fixture
def short_lease(monkeypatch: pytest.MonkeyPatch) -> float:
    monkeypatch.setattr(job_lease, "LEASE_SECONDS", 0.6)
    return 0.6


def test_the_second_run_of_a_job_is_refused_naming_the_first_and_another_job_is_not(
    shared_settings: Settings, client: redis.Redis
) -> None:
    with exclusive(client, shared_settings, "index"):
        with pytest.raises(Busy, match=rf"job index is already run by pid {os.getpid()} on "):
            run_job("index", shared_settings, client)
        with exclusive(client, shared_settings, "forget"):
            pass
        command = ["run", "index", "--data-dir", str(shared_settings.data_dir)]
        done = CliRunner().invoke(
            maintain, [*command, "--redis-url", shared_settings.redis_location], catch_exceptions=False
        )
        assert done.exit_code == 2
        assert "already run by pid" in done.output
    with exclusive(client, shared_settings, "index"):
        pass  # free again at once


def test_of_many_that_begin_at_once_one_runs_at_a_time(shared_settings: Settings) -> None:
    running: list[int] = []
    most: list[int] = []
    ran: list[int] = []

    def run(number: int) -> None:
        with connect(shared_settings) as client:
            for _ in range(10):
                try:
                    with exclusive(client, shared_settings, "index"):
                        running.append(number)
                        most.append(len(running))
                        time.sleep(0.005)
                        running.remove(number)
                        ran.append(number)
                except Busy:
                    time.sleep(0.002)

    with ThreadPoolExecutor(8) as pool:
        for done in [pool.submit(run, number) for number in range(8)]:
            done.result()
    assert max(most) == 1
    assert ran


@pytest.mark.usefixtures("short_lease")
def test_a_long_run_keeps_its_lease_and_takes_it_again_from_a_redis_that_lost_its_data(
    shared_settings: Settings, client: redis.Redis
) -> None:
    with exclusive(client, shared_settings, "index") as lease:
        time.sleep(1.5)
        with pytest.raises(Busy), exclusive(client, shared_settings, "index"):
            pass
        client.flushall()
        _wait_for(lambda: client.exists("scope-recall:running:index"))
        assert lease.held


@pytest.mark.usefixtures("short_lease")
def test_a_holder_that_was_overtaken_knows_it_and_leaves_the_next_ones_lease_alone(
    shared_settings: Settings, client: redis.Redis
) -> None:
    with exclusive(client, shared_settings, "index") as lease:
        client.set("scope-recall:running:index", "pid 1 on elsewhere (x)")
        _wait_for(lambda: not lease.held)
    assert client.get("scope-recall:running:index") == b"pid 1 on elsewhere (x)"


HOLDER = """
import time
from producers.connection import connect
from producers.settings import load_settings
from workers.maintenance import lease
lease.LEASE_SECONDS = 2.0
settings = load_settings()
with lease.exclusive(connect(settings), settings, "index"):
    print("held", flush=True)
    time.sleep(100)
"""


def test_the_lease_of_a_killed_holder_ends_by_itself(shared_settings: Settings, client: redis.Redis) -> None:
    environment = os.environ | shared_settings.as_environment()
    with subprocess.Popen([sys.executable, "-c", HOLDER], env=environment, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        holder.kill()
    with pytest.raises(Busy, match=f"pid {holder.pid}"), exclusive(client, shared_settings, "index"):
        pass
    _wait_for(lambda: not client.exists("scope-recall:running:index"))
    with exclusive(client, shared_settings, "index"):
        pass


def test_without_redis_no_job_begins_and_the_message_says_what_to_start(settings: Settings) -> None:
    settings.data_dir.mkdir()
    with pytest.raises(StreamUnavailable, match="start `scope-recall up`"):
        run_job("index", settings, connect(settings))


def test_a_scheduled_run_beside_another_ends_as_done_and_does_nothing(
    shared_settings: Settings, client: redis.Redis
) -> None:
    use_prefix(shared_settings)
    from rq import SimpleWorker
    from rq.serializers import JSONSerializer

    from workers.runtime import Runtime, install

    install(Runtime(shared_settings, client, "maintenance", threading.Event(), None, None))
    queue = rq_queue(MAINTENANCE, client, shared_settings)
    job = queue.enqueue("workers.jobs.run_maintenance", args=("index",))
    with exclusive(client, shared_settings, "index"):
        SimpleWorker([queue], connection=client, serializer=JSONSerializer).work(burst=True, logging_level="ERROR")
    assert (queue.count, queue.failed_job_registry.count) == (0, 0)
    assert job.is_finished


def _wait_for(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)
