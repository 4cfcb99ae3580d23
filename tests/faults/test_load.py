"""Bursts: what is in flight, in Redis and in a worker's memory stays bounded, and every turn is stored once."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from comparison import Stored, Tally
from known_turns import known_turn
from load import QUARTERS, Watch, quarters, table

from producers.high_water import STEP_EVENTS
from producers.settings import Settings, load_settings
from producers.stream import EventStream
from system import Cli, up

pytestmark = pytest.mark.faults

WORKERS = 2
ENTRY_BYTES = 1024
"""What a known turn takes up in Redis at most; most take a quarter of it."""
LEFT_BYTES = 1 << 20
"""What Redis may hold more after a burst than before it."""
RSS_RATIO = 1.15
"""Peak of a worker's RSS in the last quarter of the turns over that in the second."""


@contextmanager
def system(tmp_path: Path, **settings: int) -> Iterator[tuple[Cli, Settings]]:
    given = {f"SCOPE_RECALL_{name.upper()}": str(value) for name, value in settings.items()}
    cli = Cli(tmp_path / "data", given)
    with up(cli, "--workers", str(WORKERS)):
        yield cli, load_settings(data_dir=cli.data_dir, embedder="hashing", reranker="none", **settings)


@pytest.mark.timeout(240)
def test_a_burst_above_high_water_waits_and_is_stored_once_with_little_in_flight(tmp_path: Path) -> None:
    producers, count, high_water = 2, 10_000, 2_000
    files = [_file(tmp_path, n, range(n, count, producers)) for n in range(producers)]
    with system(tmp_path, high_water=high_water) as (cli, settings), Watch(settings, seconds=0.1) as watch:
        pushes = [cli.start("push", str(file), "--json") for file in files]
        outs = [push.communicate(timeout=200)[0] for push in pushes]
        assert [json.loads(out)["accepted"] for out in outs] == [count // producers] * producers
        _drain(settings)

    assert_exact(settings, count)
    longest = max(sample.length for sample in watch.samples)
    assert high_water <= longest <= high_water + producers * STEP_EVENTS
    assert_bounded(watch, settings, longest)


@pytest.mark.storm
@pytest.mark.timeout(1800)
def test_a_hundred_thousand_turns_take_up_no_more_of_a_worker_at_the_end_than_before(tmp_path: Path) -> None:
    count = int(os.environ.get("SRH_BURST_TURNS", "100000"))
    with system(tmp_path) as (_, settings), Watch(settings) as watch:
        started = time.monotonic()
        with EventStream(settings) as stream:
            stream.append(known_turn(number) for number in range(count))
        _drain(settings)
        seconds = time.monotonic() - started

    parts = quarters(watch.samples, count)
    print(f"\n{count:,} turns in {seconds:.0f} s, {count / seconds:,.0f} a second; peaks by quarter, memory in MiB")
    print(table(parts))
    assert_exact(settings, count)
    assert_bounded(watch, settings, min(count, settings.high_water))
    assert len(parts) == QUARTERS
    for worker in watch.samples[0].workers:
        peaks = [max(sample.workers[worker] for sample in part) for part in parts]
        assert peaks[-1] <= RSS_RATIO * peaks[1], f"{worker}: {peaks}"


def assert_exact(settings: Settings, count: int) -> None:
    """Both stores hold the first `count` known turns and nothing else."""
    stored = Stored(settings)
    assert stored.tally(range(count)) == Tally("all", "all", 1, count, count, 0)
    assert stored.strangers(range(count)) == (0, 0, 0)


def assert_bounded(watch: Watch, settings: Settings, entries: int) -> None:
    """In flight no more than the settings say, in Redis no more than `entries` need, and hardly anything afterwards."""
    samples = watch.samples
    assert max(sample.queued for sample in samples) <= settings.max_inflight
    assert max(sample.pending for sample in samples) <= (settings.max_inflight + WORKERS) * settings.batch_turns
    before = samples[0].redis
    assert max(sample.redis for sample in samples) <= before + entries * ENTRY_BYTES + LEFT_BYTES
    assert samples[-1].redis <= before + LEFT_BYTES


def _drain(settings: Settings) -> None:
    with EventStream(settings) as stream:
        while stream.backlog().length:
            time.sleep(0.05)


def _file(folder: Path, number: int, numbers: range) -> Path:
    path = folder / f"turns-{number}.jsonl"
    path.write_bytes(b"".join(known_turn(number).to_json() + b"\n" for number in numbers))
    return path
