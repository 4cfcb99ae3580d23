"""Redis away in the middle of four producers pushing: every accepted turn is stored once, in order, by itself."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from comparison import Stored, Tally
from external_redis import ExternalRedis, How
from pushing import PAUSE, Push, after

from producers.settings import load_settings
from system import Cli, up
from workers.progress import in_streams
from workers.stores.engine import open_engine
from workers.stores.tables import turns

pytestmark = [pytest.mark.faults, pytest.mark.timeout(600)]

PRODUCERS = 4
BEFORE_AND_AFTER = 2.0
WELL_SECONDS = 60.0


@pytest.fixture
def redis_server(tmp_path: Path) -> Iterator[ExternalRedis]:
    with ExternalRedis(tmp_path / "elsewhere") as server:
        yield server


@pytest.fixture
def system(tmp_path: Path, redis_server: ExternalRedis) -> Iterator[Cli]:
    cli = Cli(tmp_path / "data", {"SCOPE_RECALL_REDIS_URL": redis_server.url, "SCOPE_RECALL_LEASE": "3"})
    with up(cli, "--workers", "2"):
        yield cli


@pytest.mark.parametrize(
    ("how", "seconds"),
    [
        ("killed", 5.0),
        pytest.param("killed", 30.0, marks=pytest.mark.storm),
        pytest.param("frozen", 40.0, marks=pytest.mark.storm),  # longer than any client waits for an answer
    ],
)
def test_every_turn_accepted_around_an_outage_is_stored_once_and_in_order(
    system: Cli, redis_server: ExternalRedis, tmp_path: Path, how: How, seconds: float
) -> None:
    with Push(tmp_path, ["live"] * PRODUCERS, system.full_environment()) as push:
        push.go_on(after(BEFORE_AND_AFTER))
        gone = time.monotonic()
        redis_server.go(how)
        push.go_on(lambda: time.monotonic() >= gone + seconds / 2)
        assert_degraded(system, how)
        push.go_on(lambda: time.monotonic() >= gone + seconds)
        redis_server.come_back(how)
        push.go_on(after(BEFORE_AND_AFTER))
        push.settle(WELL_SECONDS)

    drained = system.run("drain", "--timeout", "200", "--json", timeout=260)
    assert drained.code == 0, drained.out + drained.err
    settings = load_settings(data_dir=system.data_dir, redis_url=redis_server.url, embedder="hashing", reranker="none")
    count = len(push.revisions)
    stored = Stored(settings)
    assert stored.tally(range(count)) == Tally("all", "all", 1, count, count, 0)
    assert stored.strangers(range(count)) == (0, 0, 0)
    assert in_streams(settings) == (0, 0)
    assert not list((system.data_dir / "spool").glob("*.spool"))
    orders = entry_orders(system.data_dir / "catalog.db")
    for producer in push.producers:
        assert sorted(producer.numbers, key=orders.__getitem__) == producer.numbers, (
            "a producer's turns came out of order"
        )
    assert_well(system)
    print(f"\n{how} for {seconds:g} s: {count} turns of {PRODUCERS} producers stored once, in order")


def assert_degraded(cli: Cli, how: How) -> None:
    """`status` says what is the matter, what is safe, and what to do."""
    status = cli.run("status", "--json")
    assert status.code == 1
    said = " ".join(status.json["degraded"])
    assert "no Redis at unix://" in said
    assert "start it again, or set redis_url" in said
    assert "What is stored can be recalled meanwhile" in said
    if how == "killed":  # one that is frozen has just begun to make producers wait
        assert "accepted turns wait in" in said
        assert "they are safe and are sent when it takes them" in said


def assert_well(cli: Cli) -> None:
    """Nothing is degraded, and no process had to be started again."""
    deadline = time.monotonic() + WELL_SECONDS
    while (status := cli.run("status", "--json")).code:
        assert time.monotonic() < deadline, status.json["degraded"]
        time.sleep(PAUSE)
    assert [child["restarts"] for child in status.json["processes"]["children"]] == [0] * 5


def entry_orders(catalog: Path) -> dict[int, str]:
    """By number of the turn: the place of its entry on the stream."""
    engine = open_engine(catalog, create=False)
    with engine.connect() as connection:
        rows = connection.execute(sa.select(turns.c.turn_index, turns.c.entry_order)).all()
    engine.dispose()
    return {row.turn_index: row.entry_order for row in rows}
