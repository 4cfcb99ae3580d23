"""Tombstones and locks over real databases: hidden at once, dropped when late, and nobody erases while others write."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import product

import pytest

from producers.events import TurnEvent
from workers.order import order_at
from workers.stores.catalog import Catalog
from workers.stores.scope import Scope
from workers.stores.selection import Selection
from workers.stores.space import Space, vector_id
from workers.stores.spaces import StoredSpace
from workers.stores.turn_writer import ChunkSpan, TurnWrite

pytestmark = pytest.mark.contract

SPACE = Space("hashing-v1", 64, 256, 32)
NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
NOON_MS = int(NOON.timestamp() * 1000)
CUTOFF = order_at(NOON_MS + 1000)
IDS = ("a", "o'brien", "x' OR '1'='1", "%")


@pytest.fixture
def catalog(catalog_url: str) -> Iterator[Catalog]:
    opened = Catalog.open(catalog_url, create=True)
    opened.spaces.adopt(StoredSpace(SPACE, "hashing", None))
    yield opened
    opened.close()


def write(content: str, ms: int = 0, accepted: str | None = None, **fields: object) -> TurnWrite:
    event = TurnEvent.model_validate({"tenant": "t", "session_id": "s", "turn_index": 0, "role": "user", **fields,
                                      "content": content})  # fmt: skip
    key = vector_id(SPACE.id, event.key, event.content_hash, 0)
    span = ChunkSpan(SPACE.id, key, 0, 1, 0, len(content), "prose", None)
    return TurnWrite(event, order_at(NOON_MS + ms), (span,), accepted)


def bury(catalog: Catalog, selection: Selection) -> list[str]:
    """Forget the selection; returns the contents that were handed out before."""
    kept: list[str] = []
    catalog.tombstones.bury(selection, lambda: CUTOFF, lambda _, contents: kept.extend(contents))
    return kept


def seen(catalog: Catalog, one: TurnWrite) -> bool:
    return bool(catalog.hydrate([one.chunks[0].vector_id], Scope(one.event.tenant), SPACE))


def test_what_is_buried_is_gone_for_recall_at_once_and_its_contents_were_handed_out(catalog: Catalog) -> None:
    mine, other = write("mine"), write("other", session_id="s2")
    catalog.write([SPACE], [mine, other])
    assert bury(catalog, Selection("t", "s")) == ["mine"]
    assert (seen(catalog, mine), seen(catalog, other)) == (False, True)
    (found,) = catalog.tombstones.unfinished()
    assert (found.turns, found.chunks, found.selection) == (1, 1, Selection("t", "s"))


def test_an_event_accepted_before_is_dropped_when_it_arrives_and_a_later_one_is_stored(catalog: Catalog) -> None:
    bury(catalog, Selection("t", "s"))
    late = [write("late", 1000), write("in a spool", 9000, accepted=order_at(NOON_MS + 500), turn_index=1)]
    again = [write("again", 1001, turn_index=2), write("elsewhere", 0, session_id="s2")]
    assert catalog.write([SPACE], [*late, *again]) == ["forgotten", "forgotten", "new", "new"]
    assert [seen(catalog, one) for one in (*late, *again)] == [False, False, True, True]


def test_a_finished_forget_still_drops_what_comes_late_and_names_nobody(catalog: Catalog) -> None:
    bury(catalog, Selection("secret-tenant", "secret-session", "secret-agent"))
    (found,) = catalog.tombstones.unfinished()
    catalog.tombstones.finish(found.tombstone.id)
    assert catalog.tombstones.unfinished() == []
    late = write("late", tenant="secret-tenant", session_id="secret-session", agent_id="secret-agent")
    assert catalog.write([SPACE], [late]) == ["forgotten"]
    with catalog._engine.connect() as connection:
        rows = connection.exec_driver_sql("SELECT * FROM tombstones").all()
    assert "secret" not in str(rows)


def test_the_cutoff_is_not_before_what_the_catalog_holds_already(catalog: Catalog) -> None:
    ahead = write("accepted by a clock that was set back since", 5000)
    catalog.write([SPACE], [ahead])
    bury(catalog, Selection("t"))
    assert catalog.write([SPACE], [ahead]) == ["forgotten"]
    assert catalog.write([SPACE], [write("later", 5001)]) == ["new"]


def test_a_refused_burial_changes_nothing(catalog: Catalog) -> None:
    one = write("mine")
    catalog.write([SPACE], [one])

    def refuse(number: int, contents: list[str]) -> None:
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        catalog.tombstones.bury(Selection("t"), lambda: CUTOFF, refuse)
    assert seen(catalog, one)
    assert catalog.tombstones.unfinished() == []
    assert catalog.write([SPACE], [write("revised", 1)]) == ["revision"]


@pytest.mark.parametrize("narrowing", ["session", "agent", "before"])
def test_exactly_the_selected_turns_are_forgotten_whatever_the_ids(catalog: Catalog, narrowing: str) -> None:
    writes = [
        write(f"{tenant} {session} {agent} {hours}", hours, tenant=tenant, session_id=session, agent_id=agent,
              created_at=None if hours == 0 else NOON + timedelta(hours=hours))
        for tenant, session, agent, hours in product(IDS, IDS[:2], (None, *IDS[2:]), (-1, 0, 1))
    ]  # fmt: skip
    distinct = list({(w.event.tenant, w.event.session_id): w for w in writes}.values())
    writes = [
        write(one.event.content, 0, **{**one.event.model_dump(exclude={"content"}), "turn_index": number})
        for number, one in enumerate(writes)
    ]
    assert len(distinct) == 8
    catalog.write([SPACE], writes)
    value = {"session": "o'brien", "agent": "%", "before": NOON + timedelta(milliseconds=1)}[narrowing]
    bury(catalog, Selection("x' OR '1'='1", **{narrowing: value}))  # type: ignore[arg-type]

    def selected(event: TurnEvent) -> bool:
        if event.tenant != "x' OR '1'='1":
            return False
        if narrowing == "session":
            return event.session_id == value
        if narrowing == "agent":
            return event.agent_id == value
        return (event.created_at or NOON) < value  # type: ignore[operator]

    assert [seen(catalog, one) for one in writes] == [not selected(one.event) for one in writes]
    assert any(selected(one.event) for one in writes)


def test_what_is_left_can_be_looked_through(catalog: Catalog) -> None:
    catalog.write([SPACE], [write("mine"), write("other", session_id="s2", metadata={"file": "app.py"})])
    bury(catalog, Selection("t", "s"))
    assert list(catalog.tombstones.remaining_contents()) == ['other\n{"file": "app.py"}']
    assert catalog.tombstones.count(Selection("t")) == (1, 1)
    assert [one.space for one in catalog.spaces.all()] == [SPACE]


def test_scrubbing_leaves_what_is_stored(catalog: Catalog) -> None:
    one = write("kept")
    catalog.write([SPACE], [one])
    catalog.scrub()
    assert seen(catalog, one)
    assert catalog.write([SPACE], [write("revised", 1)]) == ["revision"], "transactions work after it as before"


def test_who_erases_waits_for_writers_and_keeps_new_ones_out(catalog: Catalog) -> None:
    order: list[str] = []
    written = threading.Event()

    def erase() -> None:
        with catalog.locks.erasing():
            order.append("erased")

    def write_more() -> None:
        with catalog.locks.publishing():
            order.append("written after it")

    with catalog.locks.publishing(), catalog.locks.publishing():  # writers do not wait for one another
        threads = [threading.Thread(target=erase)]
        threads[0].start()
        time.sleep(0.3)
        threads.append(threading.Thread(target=write_more))
        threads[1].start()
        written.wait(0.3)
        order.append("written")
    for thread in threads:
        thread.join(10)
    assert order == ["written", "erased", "written after it"]


def test_maintenance_is_alone_and_does_not_hold_up_writers(catalog: Catalog) -> None:
    order: list[str] = []

    def maintain() -> None:
        with catalog.locks.maintaining():
            order.append("second")

    with catalog.locks.maintaining():
        thread = threading.Thread(target=maintain)
        thread.start()
        with catalog.locks.publishing():
            order.append("written")
        thread.join(0.3)
        order.append("first")
    thread.join(10)
    assert order == ["written", "first", "second"]
