"""Reconcile and retention in a running system, killed (-9) at any moment: the next run finishes, counts are exact."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from producers.connection import connect
from producers.keys import Keys
from producers.settings import Settings, load_settings
from producers.stream import EventStream
from stepped import turn
from system import Cli, up
from workers.stores.catalog import Catalog
from workers.stores.vectors import VectorStore

pytestmark = [pytest.mark.faults, pytest.mark.timeout(240)]

TURNS = 4000
KILLS = 3
LONGEST_DELAY = 1.2
"""Seconds between the begin of a run and its end by kill -9; a whole one takes longer."""
START_SECONDS = 60.0
SEED = 4711
NOW = datetime.now(UTC)
RULES = [{"tenant": "acme", "max_age_days": 30}]


def said(number: int, days_ago: int = 1, tenant: str = "acme") -> Any:
    content = f"the kestrel-{number}-{tenant[:2]} flew over 证书{number}号, and {number % 17} more followed it home"
    when = NOW - timedelta(days=days_ago)
    return turn(content, number, tenant=tenant, session_id=f"s{number % 50}", created_at=when)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Cli, Settings]]:
    """A system that is up with two workers, holds `TURNS` turns, and does no maintenance by itself meanwhile."""
    never = {f"SCOPE_RECALL_{name}_CRON": "0 0 1 1 *" for name in ("INDEX", "FORGET", "RETENTION", "RECONCILE")}
    cli = Cli(tmp_path_factory.mktemp("system") / "data", {**never, "SCOPE_RECALL_RETENTION": json.dumps(RULES)})
    with up(cli, "--workers", "2"):
        settings = load_settings(data_dir=cli.data_dir, embedder="hashing", reranker="none")
        push(settings, [said(number) for number in range(TURNS)])
        assert cli.run("drain").code == 0
        yield cli, settings


def push(settings: Settings, events: Sequence[Any]) -> None:
    with EventStream(settings) as stream:
        stream.append(events)


def kill_amid(cli: Cli, settings: Settings, job: str, delay: float) -> None:
    """Start a run of the job, and end it with kill -9 so long after it has begun."""
    lease = Keys(settings.key_prefix).running(job)
    with connect(settings) as client:
        run = cli.start("maintain", "run", job)
        deadline = time.monotonic() + START_SECONDS
        while not client.exists(lease):
            assert time.monotonic() < deadline
            assert run.poll() is None
            time.sleep(0.01)
        time.sleep(delay)
        run.kill()
        run.wait()
        assert run.stdout is not None
        run.stdout.close()
        client.delete(lease)  # what would happen within 30 s


def exact(settings: Settings) -> int:
    """How many turns there are, when both stores agree in every key, none twice and none pending."""
    catalog = Catalog.open(settings.catalog_location)
    active = catalog.spaces.active()
    assert active is not None
    keys = sorted(VectorStore(settings.vectors_location).keys(active.space))
    assert keys == list(catalog.vector_ids(active.space))
    counts = catalog.counts()
    assert counts.pending == 0
    assert list(catalog.retention.doomed()) == []
    catalog.close()
    return counts.turns


def bytes_left(settings: Settings, texts: Sequence[str]) -> list[str]:
    # As a process: to close a file of SQLite's in this one would give up the locks of the catalogs that are open in it.
    patterns = [option for text in texts for option in ("-e", text)]
    grep = ["grep", "-rlaF", "-D", "skip", *patterns, "."]
    return subprocess.run(grep, cwd=settings.data_dir, capture_output=True, text=True, check=False).stdout.splitlines()


def test_a_lost_table_is_built_again_though_each_run_is_killed_and_turns_come_in(running: tuple[Cli, Settings]) -> None:
    cli, settings = running
    rng = random.Random(SEED)
    before = exact(settings)
    (table,) = Path(settings.vectors_location).iterdir()
    shutil.rmtree(table)
    answer = cli.run("recall", "kestrel-7-ac", "--tenant", "acme", "--json")
    assert (answer.json["hits"], "table is gone" in str(answer.json["degraded"])) == ([], True)
    for kill in range(KILLS):
        push(settings, [said(number, tenant=f"b{kill}") for number in range(100)])
        kill_amid(cli, settings, "reconcile", rng.uniform(0.0, LONGEST_DELAY))
    assert cli.run("drain").code == 0
    status = cli.run("status", "--json").json
    if status["vectors"]["rows"] < before:
        assert any("the vector table has" in line for line in status["degraded"])
    finished = cli.run("maintain", "run", "reconcile", "--json")
    assert finished.code == 0, finished.out + finished.err
    assert exact(settings) == before + 100 * KILLS
    assert cli.recalled("kestrel-7-ac", "acme")[0]["turn_index"] == 7
    assert not any("vector table" in line for line in cli.run("status", "--json").json["degraded"])
    outcomes = [run["outcome"] for run in cli.run("maintain", "history", "reconcile", "--json").json["runs"]]
    assert outcomes == ["done", *["interrupted"] * KILLS]


def test_retention_that_is_killed_each_time_ends_with_exactly_the_right_turns(running: tuple[Cli, Settings]) -> None:
    cli, settings = running
    rng = random.Random(SEED)
    before = exact(settings)
    numbers = iter(range(TURNS, 2 * TURNS, 1000))
    texts = []
    for kill in range(KILLS):
        first = next(numbers)
        old = range(first, first + 1000)
        push(settings, [said(number, days_ago=40 + kill) for number in old] + [said(old.start, 60, "other")])
        assert cli.run("drain").code == 0
        texts += [f"kestrel-{number}-ac" for number in old[::50]]
        kill_amid(cli, settings, "retention", rng.uniform(0.0, LONGEST_DELAY))
    finished = cli.run("retention", "--json")
    assert finished.code == 0, finished.out + finished.err
    assert finished.json["after"]["verified"]
    assert exact(settings) == before + KILLS, "the other tenant's, however old"
    assert bytes_left(settings, texts) == []
    assert bytes_left(settings, [f"kestrel-{TURNS}-ot"])
    assert cli.recalled("kestrel-7-ac", "acme")[0]["turn_index"] == 7
