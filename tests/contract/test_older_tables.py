"""A vector table from before there were facts: searched, written to, completed, restored. On real LanceDB tables."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from vector_rows import SPACE, ids, row, unit_vector
from workers.backup.vector_copy import VectorSource, file_name, restore_vectors
from workers.order import order_at
from workers.stores.chunk_rows import KeyRange
from workers.stores.facts import fingerprints
from workers.stores.lance_connection import LanceConnection
from workers.stores.lance_schema import FACTS, KEY, TERMS, VECTOR, VectorRow, table_schema
from workers.stores.scope import Scope
from workers.stores.selection import Selection
from workers.stores.vector_repair import VectorRepair
from workers.stores.vectors import VectorStore

pytestmark = pytest.mark.contract

EVERY = KeyRange(None, None)
ON_MAIN = Scope("t", where=(("branch", "main"),))
MAIN, NEXT = (fingerprints({"branch": [f'"{name}"']}) for name in ("main", "next"))


def spoken(number: int) -> VectorRow:
    return row(number, facts=MAIN if number % 3 else NEXT)


@pytest.fixture
def location(tmp_path: Path) -> str:
    """Of a table with 30 rows in three fragments, some of which were deleted since, and no column for facts."""
    location = str(tmp_path / "vectors")
    store = VectorStore(location)
    for first in (0, 12, 24):
        store.upsert(SPACE, [row(number) for number in range(first, first + 12)])
    VectorRepair(location).delete(SPACE, [f"v{number}" for number in (3, 13, 24, 34, 35, 30)])
    in_table(location, lambda table: table.drop_columns([FACTS]))
    return location


def in_table(location: str, operation: Any) -> Any:
    return LanceConnection(location).write(SPACE, operation)


def test_until_it_is_completed_where_leaves_the_choice_to_the_catalog(location: str) -> None:
    store = VectorStore(location)
    assert store.without_facts(SPACE) == 30
    assert len(store.dense(SPACE, unit_vector(1), ON_MAIN, 50)) == 30
    assert len(store.lexical(SPACE, "hello", ON_MAIN, 50)) == 30
    assert len(store.dense(SPACE, unit_vector(1), Scope("t"), 50)) == 30
    assert store.without_facts(SPACE) == 30, "reading changes nothing"


def test_new_rows_have_facts_at_once_and_the_older_ones_stay(location: str) -> None:
    store = VectorStore(location)
    store.upsert(SPACE, [row(100, facts=MAIN), row(101, facts=NEXT), row(102)])
    assert store.without_facts(SPACE) == 30
    assert in_table(location, lambda table: table.schema).equals(table_schema(SPACE.dimension), check_metadata=False)
    found = ids(store.dense(SPACE, unit_vector(1), ON_MAIN, 50))
    assert ("v100" in found, "v101" in found, "v102" in found, len(found)) == (True, False, False, 31)


@pytest.mark.parametrize("indexed", [False, True], ids=["as it is", "with an index on the key"])
def test_facts_are_written_beside_what_is_there(location: str, indexed: bool) -> None:
    store, repair = VectorStore(location), VectorRepair(location)
    if indexed:
        store.optimize(SPACE, keep_versions=timedelta(minutes=1))
        store.build_index(SPACE, KEY, "btree")
    before = store.vectors_of(SPACE, list(store.keys(SPACE)))
    covered = store.indexes(SPACE)[TERMS].rows
    repair.add_columns(SPACE)
    repair.add_columns(SPACE)
    low, high = KeyRange(None, "v2"), KeyRange("v2", None)
    bare = repair.without_facts(SPACE, low)
    assert sorted(bare + repair.without_facts(SPACE, high)) == sorted(repair.without_facts(SPACE, EVERY))
    assert set(bare) == {key for key in before if key < "v2"}
    repair.write_facts(SPACE, {key: spoken(int(key[1:])).facts for key in bare} | {"v999": MAIN})
    assert store.without_facts(SPACE) == 30 - len(bare)
    rest = repair.without_facts(SPACE, EVERY)
    repair.write_facts(SPACE, {key: spoken(int(key[1:])).facts for key in rest})
    repair.write_facts(SPACE, {})
    assert store.without_facts(SPACE) == 0
    wanted = sorted(key for key in before if int(key[1:]) % 3)
    assert sorted(ids(store.dense(SPACE, unit_vector(1), ON_MAIN, 50))) == wanted
    assert sorted(ids(store.lexical(SPACE, "hello", ON_MAIN, 50))) == wanted
    after = store.vectors_of(SPACE, list(store.keys(SPACE)))
    assert {key: vector.tolist() for key, vector in after.items()} == {k: v.tolist() for k, v in before.items()}
    if indexed:
        assert store.indexes(SPACE)[TERMS].rows == covered == 30, "no other column was written anew"
    store.optimize(SPACE, keep_versions=timedelta(minutes=1))
    assert sorted(ids(store.dense(SPACE, unit_vector(1), ON_MAIN, 50))) == wanted
    assert store.erase(SPACE, Selection("t", session="s"), order_at(6)) == 6, "of 0 to 6 the third was gone"
    store.rebuild_indexes(SPACE)
    store.drop_history(SPACE)
    assert sorted(ids(store.lexical(SPACE, "hello", ON_MAIN, 50))) == [key for key in wanted if int(key[1:]) > 6]


@pytest.mark.parametrize("indexed", [False, True], ids=["as it is", "with an index on the key"])
def test_it_is_completed_while_several_write_to_it(location: str, indexed: bool) -> None:
    if indexed:
        VectorStore(location).build_index(SPACE, KEY, "btree")

    def write(worker: int) -> None:
        store = VectorStore(location)
        for batch in range(3):
            first = 1000 + worker * 100 + batch * 10
            store.upsert(SPACE, [spoken(number) for number in range(first, first + 5)])

    def complete() -> None:
        repair = VectorRepair(location)
        repair.add_columns(SPACE)
        for key in repair.without_facts(SPACE, EVERY)[::2]:
            repair.write_facts(SPACE, {key: spoken(int(key[1:])).facts})

    with ThreadPoolExecutor(4) as workers:
        running = [workers.submit(write, number) for number in range(3)] + [workers.submit(complete)]
        for one in running:
            one.result()
    store = VectorStore(location)
    assert len(list(store.keys(SPACE))) == len(set(store.keys(SPACE))) == 30 + 3 * 3 * 5
    assert store.without_facts(SPACE) == 15
    new = {f"v{1000 + w * 100 + b * 10 + n}" for w in range(3) for b in range(3) for n in range(5)}
    found = set(ids(store.dense(SPACE, unit_vector(1), ON_MAIN, 99)))
    assert found & new == {key for key in new if int(key[1:]) % 3}


def test_a_backup_of_it_is_restored_and_its_facts_are_left_open(location: str, tmp_path: Path) -> None:
    source = VectorSource(location)
    version = source.version(SPACE)
    assert version is not None
    (tmp_path / "vectors-copy" / "vectors").mkdir(parents=True)
    copied = source.copy(SPACE, version, tmp_path / "vectors-copy", lambda *_: None)
    other = str(tmp_path / "other")
    file = tmp_path / "vectors-copy" / file_name(SPACE)
    assert restore_vectors(other, SPACE, file, lambda *_: None) == copied == 30
    restored = VectorStore(other)
    assert restored.without_facts(SPACE) == 30
    assert sorted(restored.keys(SPACE)) == sorted(VectorStore(location).keys(SPACE))
    assert VECTOR in in_table(other, lambda table: table.schema.names)
