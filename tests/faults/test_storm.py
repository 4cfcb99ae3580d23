"""Random kills one after the other while producers push: every accepted turn is stored exactly once.

The short storm is a test like any other; the long ones are for `make faults`, which prints their tables.
SRH_STORM_SEED repeats the kills of another run.
"""

from __future__ import annotations

import os
import random
import time
from collections import defaultdict
from pathlib import Path

import pytest
from comparison import Stored, Tally, table
from harness import CrashSystem
from storm import Kill, plan

from producers.keys import Keys
from producers.settings import LANES
from workers.queues import MAINTENANCE

pytestmark = pytest.mark.faults

SEED = int(os.environ.get("SRH_STORM_SEED", "20270104"))
DRAIN_SECONDS = 300.0
RECALLED_OF_A_KIND = 5
MORE_TURNS = 30
"""An append for each producer."""
REGISTRIES = ("wip", "finished", "failed")
LASTING_KEYS = {
    *(f"{kind}:{lane}" for kind in ("stream", "claim-cursor") for lane in LANES),
    "counters",
    "rq:queues",
    "rq:workers",
    *(f"rq:{kind}:{Keys.queue(lane)}" for kind in ("workers", *REGISTRIES) for lane in (*LANES, MAINTENANCE)),
    f"rq:queue:{Keys.queue(MAINTENANCE)}:intermediate",
    "rq:cron_schedulers",
}
"""The keys that may be in Redis without an expiry when nothing waits. None grows with what was pushed: RQ's registries
have an entry for each job or process that died lately, and RQ takes those out."""


@pytest.mark.timeout(180)
def test_a_short_storm_of_kills_loses_nothing_and_stores_nothing_twice(tmp_path: Path) -> None:
    with CrashSystem(tmp_path) as system:
        assert_exact_after(system, kills=12, turns_a_kill=250)


@pytest.mark.storm
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("appendfsync", ["always", "everysec"])
def test_a_long_storm_of_kills_loses_nothing_and_stores_nothing_twice(tmp_path: Path, appendfsync: str) -> None:
    with CrashSystem(tmp_path, appendfsync=appendfsync) as system:
        assert_exact_after(system, kills=200, turns_a_kill=100)


def assert_exact_after(system: CrashSystem, kills: int, turns_a_kill: int) -> None:
    """Make the kills, drain, and compare everything; prints a table with a line a kind of kill."""
    started = time.monotonic()
    pushed: dict[tuple[str, str], list[range]] = defaultdict(list)
    for kill in plan(SEED, kills):
        pushed[kill.kind].append(push_and_kill(system, kill, turns_a_kill))
    system.drain(DRAIN_SECONDS)

    stored = Stored(system.settings)
    tallies = []
    rng = random.Random(SEED)
    asked = []
    for (point, process), ranges in sorted(pushed.items()):
        numbers = [number for one in ranges for number in one]
        tallies.append(stored.tally(numbers, point=point, process=process, runs=len(ranges)))
        asked += rng.sample(numbers, RECALLED_OF_A_KIND)
    print(f"\nseed {SEED}, {time.monotonic() - started:.0f} s\n{table(tallies)}")
    everything = stored.tally(range(system.turns), runs=kills)
    assert system.turns >= kills * turns_a_kill
    assert everything == Tally("all", "all", kills, system.turns, system.turns, 0)
    assert stored.strangers(range(system.turns)) == (0, 0, 0)
    assert stored.not_recalled(asked) == []
    assert system.waiting_and_dead() == (0, 0)
    assert system.permanent_keys() - LASTING_KEYS == set()
    assert system.deaths == kills
    assert not system.unexpected_ends


def push_and_kill(system: CrashSystem, kill: Kill, turns: int) -> range:
    """Have `turns` turns pushed and the kill made while they are on their way; returns their numbers."""
    deaths = system.deaths
    if kill.point is None:
        numbers = system.push(turns)
        system.wait(kill.after_ms / 1000)
        system.kill(kill.process)
    else:
        system.order(kill.point, redis=kill.process == "redis", passage=kill.passage, after_ms=kill.after_ms)
        numbers = system.push(turns)

    def killed() -> bool:
        """A producer that spools sends all of a push at once and passes its point once: then more are pushed."""
        nonlocal numbers
        if system.deaths > deaths:
            return True
        if system.is_drained():
            numbers = range(numbers.start, system.push(MORE_TURNS).stop)
        return False

    system.wait_until(killed, f"killed: {kill}")
    return numbers
