"""The catalog on PostgreSQL: kills of our processes and of the database itself lose nothing and store nothing twice."""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path

import pytest
from comparison import Stored, Tally
from harness import CrashSystem
from test_storm import assert_exact_after

from postgresql import Postgresql
from workers.stores.catalog import Catalog

pytestmark = [pytest.mark.faults, pytest.mark.timeout(240)]

TURNS = 1500
AWAY_SECONDS = 4.0


def test_a_storm_of_kills_over_a_postgresql_catalog(tmp_path: Path, postgresql: Postgresql) -> None:
    with CrashSystem(tmp_path, catalog_url=postgresql.database()) as system:
        assert_exact_after(system, kills=12, turns_a_kill=250)


def test_a_database_that_is_killed_delays_and_loses_nothing(tmp_path: Path, postgresql: Postgresql) -> None:
    with CrashSystem(tmp_path, catalog_url=postgresql.database()) as system:
        system.push(TURNS)
        system.wait_until(lambda: stored_turns(system) > TURNS / 3, "a third of it is stored")
        postgresql.kill()
        try:
            system.push(TURNS)
            system.wait(AWAY_SECONDS)
            waiting, dead = system.waiting_and_dead()
        finally:
            postgresql.start()
        assert waiting > 0
        assert dead == 0
        started = time.monotonic()
        system.drain()
        print(f"\n{waiting} turns waited; drained {time.monotonic() - started:.1f} s after the database was back")
        stored = Stored(system.settings)
        assert stored.tally(range(system.turns)) == Tally("all", "all", 1, 2 * TURNS, 2 * TURNS, 0)
        assert stored.strangers(range(system.turns)) == (0, 0, 0)
        assert system.waiting_and_dead() == (0, 0)


def stored_turns(system: CrashSystem) -> int:
    with closing(Catalog.open(system.settings.catalog_location)) as catalog:
        return catalog.counts().turns
