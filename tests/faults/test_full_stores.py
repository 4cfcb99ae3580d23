"""Writes that fail for want of room, one store at a time and in this process: none is half done, none is forgotten."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from known_turns import known_turn

from limits import largest_file
from producers.errors import SpoolFull, StoreUnavailable
from producers.settings import Settings
from producers.stream import EventStream
from stepped import Stepped, turn
from workers.maintenance import compact, index, room
from workers.status import gather_status
from workers.stores.catalog import Catalog
from workers.stores.lance_connection import LanceConnection
from workers.stores.spaces import StoredSpace
from workers.supervision.redis_server import embedded_redis

pytestmark = [pytest.mark.faults, pytest.mark.timeout(180)]

TINY = 512
"""Bytes; less than any file that a store must write."""


@pytest.fixture
def stepped(live_settings: Settings) -> Stepped:
    return Stepped(live_settings.model_copy(update={"lease": 1.0, "batch_wait": 0.0}))


def test_a_turn_whose_vectors_could_not_be_written_is_not_called_indexed(
    stepped: Stepped, monkeypatch: pytest.MonkeyPatch
) -> None:
    stepped.push(*[turn(f"turn {number}", number) for number in range(50)])
    vectors = stepped.pipeline._vectors
    upsert, refused = vectors.upsert, []

    def upsert_on_a_full_disk(*args: object) -> None:
        if len(refused) < 3:
            assert gather_status(stepped.settings)["catalog"]["pending"] == 50
            try:
                with largest_file(TINY):
                    upsert(*args)  # type: ignore[arg-type]
            except StoreUnavailable as error:
                refused.append(str(error))
                raise
        upsert(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(vectors, "upsert", upsert_on_a_full_disk)
    stepped.settle()
    assert stepped.counts() == (50, 50, 50)
    assert stepped.left() == (0, 0)
    assert all("accepted turns are safe" in line and "free space" in line for line in refused)
    assert gather_status(stepped.settings)["degraded"] == []


@pytest.mark.parametrize("step", ["upsert", "optimize", "build_index"])
def test_failed_writes_of_lancedb_leave_no_files_behind(stepped: Stepped, step: str) -> None:
    for first in (0, 50):
        stepped.push(*[turn(f"turn {number}", number) for number in range(first, first + 50)])
        stepped.settle()
    store, space = stepped.pipeline._vectors, stepped.pipeline.active.space
    folder = Path(store.location)
    before = sorted(folder.rglob("*"))
    act: Callable[[], object] = {
        "upsert": lambda: stepped.pipeline._vectors._lance.write(space, _add_again),
        "optimize": lambda: store.optimize(space, keep_versions=timedelta(minutes=10)),
        "build_index": lambda: store.build_index(space, "terms", "full-text"),
    }[step]
    for _ in range(3):
        with largest_file(TINY), pytest.raises(StoreUnavailable, match=r"File too large.*safe.*free space"):
            act()
    assert [path for path in sorted(folder.rglob("*")) if path.is_file() and path not in before] == []
    act()
    stepped.push(turn("after", 100))
    stepped.settle()


def _add_again(table: object) -> None:
    rows = table.to_arrow()  # type: ignore[attr-defined]
    table.merge_insert("vector_id").when_matched_update_all().execute(rows)  # type: ignore[attr-defined]


@pytest.mark.parametrize("room", [0, 4096, 16_384, 40_000])
def test_a_catalog_that_could_not_be_made_on_a_full_disk_is_made_later(tmp_path: Path, room: int) -> None:
    path = tmp_path / "data" / "catalog.db"
    for _ in range(2):
        with largest_file(room), pytest.raises(StoreUnavailable, match="accepted turns are safe"):
            Catalog.open(path, create=True)
    catalog = Catalog.open(path, create=True)
    assert catalog.counts().turns == 0
    catalog.close()


def test_a_full_spool_keeps_what_it_has_and_takes_more_when_there_is_room(settings: Settings) -> None:
    with EventStream(settings) as stream:
        assert stream.append([known_turn(0)]) == 1
        with largest_file(TINY), pytest.raises(SpoolFull, match="accepted before is safe there: free space"):
            stream.append(known_turn(number) for number in range(1, 50))
        assert stream.append(known_turn(number) for number in range(1, 50)) == 49
    with embedded_redis(settings):
        system = Stepped(settings)
        assert EventStream(settings).send_spooled()
        system.settle()
        assert system.counts()[0] == 50
        assert system.left() == (0, 0)


def test_maintenance_leaves_the_room_that_turns_need(stepped: Stepped, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(2):
        stepped.push(turn("hello", number))
        stepped.settle()
    store, space = stepped.pipeline._vectors, stepped.pipeline.active.space
    monkeypatch.setattr(index, "index_work", lambda *args, **kwargs: index.IndexWork((), True, False))
    monkeypatch.setattr(compact, "MAX_FRAGMENTS", 1)
    monkeypatch.setattr(room, "free_bytes", lambda location: room.RESERVED_BYTES)
    monkeypatch.setattr(LanceConnection, "write", None)  # nothing is even tried
    keep = timedelta(minutes=10)
    with pytest.raises(StoreUnavailable, match=r"needs 64\.\d MiB and its disk has 64\.0 MiB: it waits.*Free space"):
        compact.compact(store, space, keep_versions=keep)
    stored, policy = StoredSpace(space, "hashing", None), index.Policy(keep, 0.95)
    with pytest.raises(StoreUnavailable, match=r"needs 64\.\d MiB and its disk has 64\.0 MiB: it waits.*Free space"):
        index.keep_indexes(store, stored, policy, now=datetime.now(UTC), save=lambda search: None)
