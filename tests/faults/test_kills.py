"""kill -9 of each process in the middle of a burst: every accepted turn ends up stored exactly once."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from producers.settings import load_settings
from system import Cli, up
from workers.stores.catalog import Catalog
from workers.stores.vectors import VectorStore

pytestmark = [pytest.mark.faults, pytest.mark.timeout(400)]

TURNS = 10_000
DEAD_SECONDS = 60.0


@pytest.fixture
def system(tmp_path: Path) -> Iterator[Cli]:
    cli = Cli(tmp_path / "data", {"SCOPE_RECALL_LEASE": "3", "SCOPE_RECALL_BATCH_TURNS": "128"})
    with up(cli, "--workers", "2"):
        yield cli


def turns(first: int, count: int) -> list[dict[str, Any]]:
    return [
        {
            "tenant": f"tenant {n % 10}",
            "session_id": f"session {n % 97}",
            "turn_index": n,
            "role": ("user", "assistant")[n % 2],
            "content": f"turn {n}: build {n * 7919 % 100_003} passed on host {n % 13}",
        }
        for n in range(first, first + count)
    ]


def child(cli: Cli, name: str) -> dict[str, Any]:
    tree = json.loads((cli.data_dir / "up.json").read_text())
    return next(one for one in tree["children"] if one["name"] == name)


def kill(cli: Cli, name: str) -> None:
    """kill -9, and wait until the supervisor has seen it and started it again."""
    before = child(cli, name)
    os.kill(before["process"]["pid"], signal.SIGKILL)
    deadline = time.monotonic() + DEAD_SECONDS
    while time.monotonic() < deadline:
        now = child(cli, name)
        if now["restarts"] > before["restarts"] and now["ready"]:
            return
        time.sleep(0.1)
    raise AssertionError(f"{name} was not started again: {child(cli, name)}")


def assert_exact(cli: Cli, count: int) -> None:
    """Both stores hold exactly `count` turns, one chunk each, and nothing waits anywhere."""
    status = cli.run("status", "--json").json
    assert status["streams"]["live"] == {"lag": 0, "pending": 0, "length": 0}
    assert status["streams"]["dead"] == 0
    assert status["catalog"] == {"turns": count, "chunks": count, "pending": 0}
    settings = load_settings(data_dir=cli.data_dir, embedder="hashing")
    catalog = Catalog.open(settings.catalog_location)
    active = catalog.spaces.active()
    assert active is not None
    wanted = list(catalog.vector_ids(active.space))
    catalog.close()
    stored = list(VectorStore(settings.vectors_location).keys(active.space))
    assert len(stored) == len(set(stored)) == count
    assert sorted(stored) == wanted


def test_ten_thousand_turns_survive_a_kill_of_worker_intake_and_redis_in_turn(system: Cli) -> None:
    share = TURNS // 4
    for round_number, victim in enumerate([None, "worker-1", "intake", "redis"]):
        assert system.push(turns(round_number * share, share)).json["accepted"] == share
        if victim:
            kill(system, victim)
    drained = system.run("drain", "--timeout", "200", "--json", timeout=260)
    assert drained.code == 0, drained.out + drained.err
    assert_exact(system, TURNS)
    for n in (0, 2500, 5000, 7500, 9999):
        content = turns(n, 1)[0]["content"]
        assert system.recalled(content, f"tenant {n % 10}")[0]["content"] == content


def test_redis_killed_while_producers_push_loses_nothing_that_was_accepted(system: Cli) -> None:
    producers = [system.start("push", str(_file(system, n)), "--json") for n in range(3)]
    time.sleep(1.0)
    kill(system, "redis")
    accepted = 0
    for producer in producers:
        out, _ = producer.communicate(timeout=100)
        assert producer.returncode == 0, out
        accepted += json.loads(out)["accepted"]
    assert accepted == 6000
    drained = system.run("drain", "--timeout", "200", "--json", timeout=260)
    assert drained.code == 0, drained.out + drained.err
    assert_exact(system, 6000)


def _file(cli: Cli, number: int) -> Path:
    path = cli.data_dir.parent / f"turns-{number}.jsonl"
    path.write_text("".join(json.dumps(turn) + "\n" for turn in turns(number * 2000, 2000)))
    return path
