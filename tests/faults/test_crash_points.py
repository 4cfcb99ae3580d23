"""kill -9 at each named point, of the process that passes it and of Redis: all that was accepted is stored once."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from comparison import Stored, Tally, table
from harness import CrashSystem
from storm import UPSERT_MS, passed_by

from producers.crash_points import Point

pytestmark = [pytest.mark.faults, pytest.mark.timeout(180)]

TURNS = 90
SEED = 20_270


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CrashSystem]:
    with CrashSystem(tmp_path_factory.mktemp("crash")) as running:
        yield running


@pytest.fixture(scope="module")
def tallies() -> Iterator[list[Tally]]:
    made: list[Tally] = []
    yield made
    print("\n" + table(made))


@pytest.mark.parametrize("point", Point)
@pytest.mark.parametrize("victim", ["the process that passes", "redis"])
def test_a_kill_at_this_point_loses_nothing_and_stores_nothing_twice(
    system: CrashSystem, tallies: list[Tally], point: Point, victim: str
) -> None:
    rng = random.Random(f"{SEED} {point} {victim}")
    deaths = system.deaths
    after_ms = rng.uniform(0.5, UPSERT_MS) if point is Point.MID_LANCE_UPSERT else 0.0
    order = system.order(point, redis=victim == "redis", after_ms=after_ms)
    numbers = system.push(TURNS)
    system.wait_until(lambda: not order.exists() and system.deaths == deaths + 1, f"killed {point}")
    system.drain()

    stored = Stored(system.settings)
    process = "redis" if victim == "redis" else passed_by(point)
    tallies.append(stored.tally(numbers, point=point, process=process))
    assert tallies[-1].exact, tallies[-1]
    assert stored.strangers(range(system.turns)) == (0, 0, 0)
    assert stored.not_recalled(rng.sample(numbers, 5)) == []
    assert system.waiting_and_dead() == (0, 0)
    assert system.deaths == deaths + 1
    assert not system.unexpected_ends
