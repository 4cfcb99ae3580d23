"""kill -9 of `up` itself while turns, revisions and repeats are pushed: each is stored once, as last accepted."""

from __future__ import annotations

import random
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from comparison import Stored, Tally
from pushing import Push, after

from producers.settings import load_settings
from system import Cli, stop
from workers.progress import in_streams
from workers.supervision.tree_state import TreeState, load_state

pytestmark = pytest.mark.faults

SEED = 20_270_105
WAIT = 60.0
LONGEST_LIFE = 5.0
"""Seconds from a start to the kill, at most; it takes about three to be ready."""
AWAY = 0.3
"""Seconds without any `up`, while producers go on."""


@pytest.mark.parametrize(
    "rounds",
    [
        pytest.param(1, marks=pytest.mark.timeout(180)),
        pytest.param(20, marks=[pytest.mark.storm, pytest.mark.timeout(900)]),
    ],
)
def test_kills_of_the_supervisor_lose_nothing_and_leave_what_was_accepted_last(tmp_path: Path, rounds: int) -> None:
    rng = random.Random(SEED)
    # An entry is delivered again after each kill, so that a storm could bury it as one that kills its worker.
    cli = Cli(tmp_path / "data", {"SCOPE_RECALL_LEASE": "2", "SCOPE_RECALL_MAX_DELIVERIES": "50"})
    up = cli.start("up", "--workers", "2")
    try:
        cli.wait_ready(up)
        with Push(tmp_path, ["live", "backfill"], cli.full_environment(), rng) as push:
            for _ in range(rounds):
                push.go_on(after(rng.uniform(0, LONGEST_LIFE)))
                killed = kill(cli, up)
                push.go_on(after(AWAY))
                up = cli.start("up", "--workers", "2")
                push.go_on(started(cli, up))
                assert not any(child.process.alive() for child in killed.children if child.process)
            push.settle(WAIT)
        drained = cli.run("drain", "--timeout", "120", "--json", timeout=150)
        assert drained.code == 0, drained.out + drained.err
        count = len(push.revisions)
        settings = load_settings(data_dir=cli.data_dir, embedder="hashing", reranker="none")
        assert in_streams(settings) == (0, 0)
    finally:
        assert stop(up) == 0

    stored = Stored(settings, push.revisions)
    assert stored.tally(range(count)) == Tally("all", "all", 1, count, count, 0)
    assert stored.strangers(range(count)) == (0, 0, 0), "rows of an earlier revision are left"
    revised = sum(revision > 0 for revision in push.revisions.values())
    assert 0 < revised < count
    print(f"\n{rounds} kills of the supervisor: {count} turns stored once, {revised} of them revised")


def kill(cli: Cli, up: subprocess.Popen[bytes]) -> TreeState:
    """kill -9 of the supervisor alone; returns what it had written of its children."""
    tree = load_state(cli.data_dir)
    assert tree is not None
    up.kill()
    up.wait()
    assert up.stdout is not None
    up.stdout.close()
    return tree


def started(cli: Cli, up: subprocess.Popen[bytes]) -> Callable[[], bool]:
    """Whether `up` has started its children."""
    deadline = time.monotonic() + WAIT

    def look() -> bool:
        assert up.poll() is None, up.stdout.read().decode() if up.stdout else ""
        assert time.monotonic() < deadline, "`up` does not start again"
        tree = load_state(cli.data_dir)
        return tree is not None and tree.process.pid == up.pid

    return look
