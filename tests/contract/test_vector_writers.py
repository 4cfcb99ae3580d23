"""Many writers, maintenance and failures of the vector store, on real LanceDB tables."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest

from producers.errors import StoreUnavailable
from vector_rows import NOW, SPACE, ids, row, unit_vector
from workers.maintenance import compact as compacting
from workers.maintenance import index
from workers.maintenance.compact import compact
from workers.maintenance.job import Outcome
from workers.stores import lance_connection
from workers.stores.lance_connection import WRITE_ATTEMPTS, LanceConnection
from workers.stores.lance_schema import KEY
from workers.stores.scope import Scope
from workers.stores.spaces import StoredSpace
from workers.stores.vectors import VectorStore

pytestmark = pytest.mark.contract


@pytest.fixture
def store(tmp_path: Path) -> VectorStore:
    return VectorStore(str(tmp_path / "vectors"))


def in_threads(*tasks: Callable[[], object]) -> None:
    with ThreadPoolExecutor(len(tasks)) as pool:
        for future in [pool.submit(task) for task in tasks]:
            future.result()


@pytest.mark.parametrize("key_is_indexed", [False, True])
def test_threads_that_insert_the_same_new_keys_leave_each_key_once(tmp_path: Path, key_is_indexed: bool) -> None:
    first = VectorStore(str(tmp_path))
    first.upsert(SPACE, [row(30)])
    if key_is_indexed:
        first.build_index(SPACE, KEY, "btree")
    together = threading.Barrier(4)

    def insert() -> None:
        store = VectorStore(str(tmp_path))
        for batch in range(5):
            together.wait()
            store.upsert(SPACE, [row(number) for number in range(batch * 5, batch * 5 + 10)])

    in_threads(*[insert] * 4)
    assert sorted(first.keys(SPACE)) == sorted(f"v{number}" for number in range(31))


PROCESS = """
import sys
sys.path.insert(0, sys.argv[2])
from vector_rows import SPACE, row
from workers.stores.vectors import VectorStore
store = VectorStore(sys.argv[1])
for batch in range(5):
    store.upsert(SPACE, [row(number) for number in range(batch * 5, batch * 5 + 10)])
"""


def test_processes_that_insert_the_same_new_keys_leave_each_key_once(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PROCESS, str(tmp_path), str(Path(__file__).parents[1])]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(3)]
    for process in processes:
        out, err = process.communicate(timeout=100)
        assert (process.returncode, out, err) == (0, "", "")
    store = VectorStore(str(tmp_path))
    assert sorted(store.keys(SPACE)) == sorted(f"v{number}" for number in range(30))
    assert len(store.lexical(SPACE, "hello", Scope("t"), 50)) == 30


@pytest.fixture
def low_thresholds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compacting, "MAX_FRAGMENTS", 4)
    monkeypatch.setattr(index, "MIN_UNINDEXED", 150)
    monkeypatch.setattr(index, "SCALAR_INDEX_MIN_ROWS", 100)
    monkeypatch.setattr(index, "VECTOR_INDEX_MIN_BYTES", 600 * SPACE.dimension * 4)


KEEP = timedelta(minutes=10)


def maintain(store: VectorStore) -> tuple[Outcome, Outcome]:
    """Both jobs, on a space whose catalog remembers nothing."""
    policy = index.Policy(KEEP, recall_floor=0.95)
    stored = StoredSpace(SPACE, "test", None)
    indexed = index.keep_indexes(store, stored, policy, now=NOW, save=lambda search: None)
    return indexed, compact(store, SPACE, keep_versions=KEEP)


def test_maintenance_does_nothing_when_nothing_is_due(store: VectorStore) -> None:
    for _ in range(2):
        for outcome in maintain(store):
            assert outcome.did is None
            assert outcome.before == outcome.after
        store.upsert(SPACE, [row(number) for number in range(10)])


@pytest.mark.usefixtures("low_thresholds")
def test_indexes_grow_with_the_table_and_every_row_stays_found(store: VectorStore) -> None:
    did = ""
    for batch in range(14):
        store.upsert(SPACE, [row(number, f"word{number} zebra") for number in range(batch * 50, batch * 50 + 50)])
        indexed, compacted = maintain(store)
        did += f"{indexed.did}; "
        assert compacted.after["fragments"] <= 5
    assert "recall@50 1.000 with refine 4" in did
    assert all(did.count(f"index of {column};") == 1 for column in (*index.SCALAR_COLUMNS, "vector"))
    store.upsert(SPACE, [row(number, f"word{number} zebra") for number in range(695, 705)])
    assert len(set(store.keys(SPACE))) == len(list(store.keys(SPACE))) == 705
    for number in (0, 350, 699, 704):
        assert ids(store.lexical(SPACE, f"word{number}", Scope("t"), 5)) == [f"v{number}"]
        assert store.dense(SPACE, unit_vector(number), Scope("t"), 5)[0].score == pytest.approx(1, abs=1e-5)
        assert ids(store.dense(SPACE, unit_vector(number), Scope("t"), 5))[0] == f"v{number}"


@pytest.mark.usefixtures("low_thresholds")
def test_upserts_while_indexes_are_kept_neither_fail_nor_duplicate(tmp_path: Path) -> None:
    VectorStore(str(tmp_path)).upsert(SPACE, [row(0)])
    done = threading.Event()

    def insert() -> None:
        store = VectorStore(str(tmp_path))
        try:
            for batch in range(20):
                store.upsert(SPACE, [row(number) for number in range(batch * 10, batch * 10 + 15)])
        finally:
            done.set()

    def keep() -> None:
        store = VectorStore(str(tmp_path))
        while not done.is_set():
            maintain(store)

    in_threads(insert, insert, keep)
    store = VectorStore(str(tmp_path))
    assert sorted(store.keys(SPACE)) == sorted(f"v{number}" for number in range(205))
    assert len(store.lexical(SPACE, "hello", Scope("t"), 500)) == 205


@pytest.fixture
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lance_connection, "FIRST_PAUSE", 0.0)


@pytest.mark.usefixtures("short_pauses")
def test_commit_conflicts_are_retried_a_bounded_number_of_times(tmp_path: Path) -> None:
    lance = LanceConnection(str(tmp_path))
    attempts: list[int] = []

    def conflict(until: int) -> int:
        attempts.append(1)
        if len(attempts) < until:
            raise RuntimeError("lance error: Commit conflict for version 7: …")
        return len(attempts)

    assert lance.write(SPACE, lambda _: conflict(WRITE_ATTEMPTS), create=True) == WRITE_ATTEMPTS
    attempts.clear()
    with pytest.raises(StoreUnavailable, match=f"{WRITE_ATTEMPTS} attempts met another writer"):
        lance.write(SPACE, lambda _: conflict(99), create=True)
    assert len(attempts) == WRITE_ATTEMPTS


def test_a_failing_read_is_repeated_once_on_a_fresh_handle(store: VectorStore, tmp_path: Path) -> None:
    store.upsert(SPACE, [row(0)])
    lance = LanceConnection(str(tmp_path / "vectors"))
    handles: list[object] = []

    def read(table: object, failures: int) -> str:
        handles.append(table)
        if len(handles) <= failures:
            raise RuntimeError("lance error: Not found: part_0_tokens.lance")
        return "found"

    assert lance.read(SPACE, lambda table: read(table, 1), "") == "found"
    assert handles[0] is not handles[1]
    handles.clear()
    with pytest.raises(StoreUnavailable, match=r"reading failed: lance error: Not found"):
        lance.read(SPACE, lambda table: read(table, 2), "")


def test_a_location_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    location = tmp_path / "file"
    location.write_text("not a folder")
    store = VectorStore(str(location))
    with pytest.raises(StoreUnavailable, match=rf"{location}.*accepted turns are safe.*free space"):
        store.upsert(SPACE, [row(0)])
    with pytest.raises(StoreUnavailable, match=str(location)):
        store.lexical(SPACE, "hello", Scope("t"), 5)


def test_nothing_is_printed(store: VectorStore, capfd: pytest.CaptureFixture[str]) -> None:
    store.upsert(SPACE, [row(number) for number in range(300)])
    store.lexical(SPACE, "hello world", Scope("t"), 5)
    store.dense(SPACE, unit_vector(0), Scope("t"), 5)
    store.build_index(SPACE, "vector", "hnsw")
    store.upsert(SPACE, [row(number) for number in range(300, 600)])
    store.optimize(SPACE, keep_versions=timedelta(minutes=1))
    store.dense(SPACE, unit_vector(0), Scope("t"), 5)
    assert store.statistics(SPACE).rows == 600
    assert capfd.readouterr() == ("", "")
