"""Erasing from a real LanceDB table: by the bytes of its files."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import product
from pathlib import Path

import pytest

from producers.events import utc_microseconds
from vector_rows import SPACE, row
from workers.order import order_at
from workers.stores import lance_erasure
from workers.stores.scope import Scope
from workers.stores.selection import Selection
from workers.stores.vectors import VectorStore

pytestmark = pytest.mark.contract

CUTOFF = order_at(10_000)
NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


@pytest.fixture
def store(tmp_path: Path) -> VectorStore:
    return VectorStore(str(tmp_path / "vectors"))


def holding(folder: Path, text: str) -> list[Path]:
    """Files that hold the text."""
    return [path for path in folder.rglob("*") if path.is_file() and text.encode() in path.read_bytes()]


def erase(store: VectorStore, selection: Selection, cutoff: str = CUTOFF) -> int:
    """All of an erasure's steps."""
    erased = store.erase(SPACE, selection, cutoff)
    store.rebuild_indexes(SPACE)
    store.drop_history(SPACE)
    return erased


def fill(store: VectorStore) -> None:
    """20 fragments of ten rows, a row of each session in each."""
    for batch in range(20):
        numbers = range(batch * 10, batch * 10 + 10)
        store.upsert(SPACE, [row(n, f"kestrel{n}quartz said", session_id=f"s{n % 10}") for n in numbers])


@pytest.mark.parametrize("listable", [True, False])
def test_no_file_holds_what_was_erased_and_the_rows_beside_it_are_all_there(
    store: VectorStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, listable: bool
) -> None:
    if not listable:  # as on an object store
        monkeypatch.setattr(lance_erasure, "_marked_fragments", lambda table: None)
    fill(store)
    assert holding(tmp_path, "kestrel13quartz")
    assert erase(store, Selection("t", "s3")) == 20
    assert not [n for n in range(3, 200, 10) if holding(tmp_path, f"kestrel{n}quartz")]
    assert sorted(store.keys(SPACE)) == sorted(f"v{n}" for n in range(200) if n % 10 != 3)
    assert holding(tmp_path, "kestrel14quartz")
    assert [found.vector_id for found in store.lexical(SPACE, "kestrel14quartz", Scope("t"), 5)] == ["v14"]
    assert store.lexical(SPACE, "kestrel13quartz", Scope("t"), 5) == []


def test_an_earlier_revision_of_an_erased_turn_is_erased_with_it(store: VectorStore, tmp_path: Path) -> None:
    fill(store)
    store.upsert(SPACE, [row(13, "revised", session_id="s3", vector_id="v13b", content_hash="h13b")])
    store.delete_superseded(SPACE, [("k13", "h13b")])
    assert holding(tmp_path, "kestrel13quartz"), "the deleted row's bytes are still in its fragment"
    store.erase(SPACE, Selection("t", "s3"), CUTOFF)
    erase(store, Selection("t", "no such session"))
    assert not holding(tmp_path, "kestrel13quartz")


def test_what_an_interrupted_write_left_is_erased_too(store: VectorStore, tmp_path: Path) -> None:
    fill(store)
    (folder,) = (tmp_path / "vectors").iterdir()
    leftover = folder / "data" / "0110left.lance"
    leftover.write_bytes(b"kestrel13quartz")
    erase(store, Selection("t", "s3"))
    assert not leftover.exists()


def test_a_row_that_was_accepted_later_stays(store: VectorStore) -> None:
    store.upsert(SPACE, [row(1), row(2)])
    assert erase(store, Selection("t"), order_at(1)) == 1
    assert list(store.keys(SPACE)) == ["v2"]


def test_exactly_the_selected_rows_are_erased_whatever_the_ids(store: VectorStore) -> None:
    ids = ("a", "o'brien", "x' OR '1'='1", "%")
    facts = list(product(ids, ids[:2], (None, *ids[2:]), (None, -1, 1)))
    rows = [
        row(n, tenant=tenant, session_id=session, agent_id=agent, entry_order=order_at(int(NOON.timestamp() * 1000)),
            created_at_us=None if hours is None else utc_microseconds(NOON + timedelta(hours=hours)))
        for n, (tenant, session, agent, hours) in enumerate(facts)
    ]  # fmt: skip
    store.upsert(SPACE, rows)
    left = set(range(len(rows)))
    before = NOON + timedelta(milliseconds=1)
    for selection in (
        Selection("o'brien", session="a"),
        Selection("x' OR '1'='1", agent="%"),
        Selection("%", before=before),
        Selection("%", session="o'brien", agent="%"),
        Selection("nobody"),
    ):
        selected = {
            n
            for n, (tenant, session, agent, hours) in enumerate(facts)
            if tenant == selection.tenant
            and selection.session in (None, session)
            and selection.agent in (None, agent)
            and (selection.before is None or (hours or 0) <= 0)
        }
        assert store.erase(SPACE, selection, order_at(2**53)) == len(selected & left)
        left -= selected
        assert {int(key[1:]) for key in store.keys(SPACE)} == left


def test_erasing_where_nothing_was_stored_does_nothing(store: VectorStore, tmp_path: Path) -> None:
    assert erase(store, Selection("t")) == 0
    assert not (tmp_path / "vectors").exists()
