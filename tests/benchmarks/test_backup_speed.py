"""How long a backup of 100,000 chunks takes, how large it is, and how long ingest waits. Prints a table."""

from __future__ import annotations

import statistics
import threading
import time
from pathlib import Path

import pytest

from producers.settings import Settings
from producers.stream import EventStream
from stepped import Stepped, turn
from workers.backup.check import check_backup
from workers.backup.make import make_backup
from workers.backup.restore import restore_backup
from workers.disk import shown_size
from workers.ingest import Arrival
from workers.order import order_at
from workers.stores.vectors import VectorStore

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(1800)]

CHUNKS = 100_000
BATCH = 500
BACKUPS = 5
WAITING = 5_000
TEXT = (
    "turn {}: the build passed on host {} and the deployment went to the river stage at dawn, as planned before. " * 3
)


def store(system: Stepped, first: int, count: int) -> float:
    """Store a batch as a worker does; returns how long it took."""
    events = [turn(TEXT.format(number, number % 97, number, 0, 0, 0), number) for number in range(first, first + count)]
    started = time.perf_counter()
    system.pipeline.store([Arrival(one, order_at(one.turn_index + 1)) for one in events])
    return time.perf_counter() - started


def test_backup(live_settings: Settings, tmp_path: Path) -> None:
    system = Stepped(live_settings)
    for first in range(0, CHUNKS, BATCH):
        store(system, first, BATCH)
    with EventStream(live_settings) as stream:
        stream.append(turn(TEXT.format(n, 0, 0, 0, 0, 0), n, session_id="waiting") for n in range(WAITING))
    (space,) = [one.space for one in system.pipeline._catalog.spaces.all()]
    VectorStore(live_settings.vectors_location).rebuild_indexes(space)
    stop = threading.Event()
    idle = [store(system, CHUNKS + 50 * number, 50) for number in range(40)]
    loaded: list[float] = []

    def load() -> None:
        first = CHUNKS + 10_000
        while not stop.is_set():
            loaded.append(store(system, first, 50))
            first += 50

    thread = threading.Thread(target=load)
    thread.start()
    made = [make_backup(live_settings, tmp_path / f"backup-{number}") for number in range(BACKUPS)]
    stop.set()
    thread.join()
    held = [one.manifest.held_ms for one in made]
    started = time.perf_counter()
    check_backup(tmp_path / "backup-0")
    checked = time.perf_counter() - started
    elsewhere = live_settings.model_copy(update={"data_dir": tmp_path / "elsewhere"})
    restored = restore_backup(elsewhere, tmp_path / "backup-0")
    last = made[-1].manifest
    print(f"\n{last.chunks:,} chunks of {space.dimension} dimensions, {WAITING:,} entries on the stream")
    print(f"size {shown_size(made[0].manifest.bytes)}")
    print("backup seconds: " + ", ".join(f"{one.seconds:.1f}" for one in made))
    print(f"check {checked:.1f} s, restore with check {restored.seconds:.1f} s")
    print(f"ingest held up ms: median {statistics.median(held):.0f}, max {max(held):.0f}")
    for name, times in (("alone", idle), ("during backups", loaded)):
        print(f"batch of 50 {name}: median {statistics.median(times) * 1000:.0f} ms, max {max(times) * 1000:.0f} ms")
