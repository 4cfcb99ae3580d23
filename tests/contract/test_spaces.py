"""The spaces of a catalog over a real database: who is read, who is written to, and that no turn slips between."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from producers.errors import ModelError, NotReady, StoreUnavailable, UsageError
from producers.events import TurnEvent
from workers.order import entry_order
from workers.stores.catalog import Catalog
from workers.stores.probes import Asked
from workers.stores.selection import Selection
from workers.stores.space import Space, vector_id
from workers.stores.space_filling import SpaceFill
from workers.stores.spaces import Plan, StoredSpace
from workers.stores.turn_writer import ChunkSpan, TurnWrite

pytestmark = pytest.mark.contract

OLD = Space("hashing-v1", 64, 256, 32)
NEW = Space("hashing-v1-128", 128, 256, 32)
OTHER = Space("hashing-v1-32", 32, 256, 32)
ACTIVE = StoredSpace(OLD, "hashing", None)
BUILDING = StoredSpace(NEW, "hashing:128", frozenset({"latin"}), "building")


@pytest.fixture
def catalog(catalog_url: str) -> Iterator[Catalog]:
    opened = Catalog.open(catalog_url, create=True)
    opened.spaces.adopt(ACTIVE)
    yield opened
    opened.close()


def write(number: int, spaces: Sequence[Space], content: str = "", entry: str = "1-0") -> TurnWrite:
    said = content or f"turn {number}"
    event = TurnEvent(tenant="t", session_id=f"s{number}", turn_index=0, role="user", content=said)
    spans = [span for space in spaces for span in chunks(event, space)]
    return TurnWrite(event, entry_order(entry), tuple(spans))


def chunks(event: TurnEvent, space: Space) -> tuple[ChunkSpan, ...]:
    key = vector_id(space.id, event.key, event.content_hash, 0)
    return (ChunkSpan(space.id, key, 0, 1, 0, len(event.content), "prose", None),)


def fill(one: TurnWrite, space: Space) -> SpaceFill:
    return SpaceFill(one.event.key, one.event.content_hash, chunks(one.event, space))


def states(catalog: Catalog) -> dict[str, str]:
    return {one.space.embedder: one.state for one in catalog.spaces.all()}


def test_a_building_space_is_written_to_and_not_read(catalog: Catalog) -> None:
    begun = catalog.spaces.begin_building(BUILDING)
    assert begun == BUILDING
    assert begun.since is not None
    assert catalog.spaces.active() == ACTIVE
    assert {one.space for one in catalog.spaces.written()} == {OLD, NEW}
    assert catalog.spaces.building() == BUILDING


def test_a_batch_made_for_other_spaces_than_there_are_is_not_written(catalog: Catalog) -> None:
    one = write(1, [OLD])
    catalog.spaces.begin_building(BUILDING)
    with pytest.raises(StoreUnavailable, match="the spaces have changed"):
        catalog.write([OLD], [one])
    assert catalog.counts().turns == 0
    assert catalog.write([OLD, NEW], [one]) == ["new"], "the model of a space that is built may be away"
    catalog.spaces.retire(NEW)
    with pytest.raises(StoreUnavailable, match="the spaces have changed"):
        catalog.write([OLD, NEW], [write(2, [OLD, NEW])])


def test_a_batch_without_the_active_spaces_chunks_is_not_written(catalog: Catalog) -> None:
    """It was made while another space was active."""
    catalog.spaces.begin_building(BUILDING)
    catalog.spaces.switch(NEW)
    with pytest.raises(StoreUnavailable, match="is tried again"):
        catalog.write([OLD, NEW], [write(1, [OLD])])
    assert catalog.write([OLD, NEW], [write(1, [NEW])]) == ["new"]


def test_reads_are_switched_only_when_every_turn_is_in_the_new_space(catalog: Catalog) -> None:
    writes = [write(number, [OLD]) for number in range(5)]
    catalog.write([OLD], writes)
    catalog.spaces.begin_building(BUILDING)
    with pytest.raises(NotReady, match="5 of 5 turns are not in hashing-v1-128"):
        catalog.spaces.switch(NEW)
    lacking = catalog.filling.lacking(NEW, "", 10)
    assert [key for key, _ in lacking] == sorted(one.event.key for one in writes)
    assert {chars for _, chars in lacking} == {6}
    assert catalog.filling.fill(NEW, [fill(one, NEW) for one in writes[:4]]) == {one.event.key for one in writes[:4]}
    assert catalog.filling.lacking(NEW, "", 10) == [(writes[4].event.key, 6)]
    assert catalog.filling.filled_and_turns(NEW) == (4, 5)
    with pytest.raises(NotReady, match="1 of 5"):
        catalog.spaces.switch(NEW)
    assert catalog.spaces.active() == ACTIVE
    catalog.filling.fill(NEW, [fill(writes[4], NEW)])
    catalog.spaces.switch(NEW)
    assert states(catalog) == {"hashing-v1": "standby", "hashing-v1-128": "active"}
    before = catalog.spaces.before()
    assert before is not None
    assert before.space == OLD
    catalog.spaces.switch(OLD)
    assert states(catalog) == {"hashing-v1": "active", "hashing-v1-128": "standby"}


def test_filling_again_changes_nothing_and_what_was_revised_or_forgotten_is_not_filled(catalog: Catalog) -> None:
    kept, revised, forgotten = (write(number, [OLD]) for number in range(3))
    catalog.write([OLD], [kept, revised, forgotten])
    catalog.spaces.begin_building(BUILDING)
    catalog.write([OLD, NEW], [write(1, [OLD, NEW], "another text", "2-0")])
    catalog.tombstones.bury(Selection("t", "s2"), lambda: entry_order("9-0"), lambda *_: None)
    for _ in range(2):
        filled = catalog.filling.fill(NEW, [fill(one, NEW) for one in (kept, revised, forgotten)])
        assert filled == {kept.event.key}
    assert catalog.filling.filled_and_turns(NEW) == (2, 2)
    assert len(list(catalog.vector_ids(NEW))) == 2


def test_a_resumed_turn_is_in_the_spaces_that_have_its_vectors_and_in_no_other(catalog: Catalog) -> None:
    """Cut short between the stores: what the catalog said of its vectors may not be so."""
    catalog.spaces.begin_building(BUILDING)
    catalog.write([OLD, NEW], [write(1, [OLD, NEW])])
    assert catalog.write([OLD, NEW], [write(1, [OLD])]) == ["resume"]
    assert catalog.filling.filled_and_turns(NEW) == (0, 1)
    assert catalog.write([OLD, NEW], [write(1, [OLD, NEW])]) == ["resume"]
    assert catalog.filling.filled_and_turns(NEW) == (1, 1)
    assert catalog.counts().chunks == 1, "of the active space"


def test_one_space_is_built_at_a_time_and_the_same_one_goes_on_with_its_new_plan(catalog: Catalog) -> None:
    catalog.spaces.begin_building(BUILDING)
    catalog.spaces.note(NEW, speed=12.5, verdict={"recall": 0.1})
    with pytest.raises(UsageError, match=r"hashing-v1-128 .* is being built"):
        catalog.spaces.begin_building(StoredSpace(OTHER, "hashing:32", None))
    with pytest.raises(UsageError, match=r"recall reads hashing-v1 .* already"):
        catalog.spaces.begin_building(ACTIVE)
    again = StoredSpace(NEW, "hashing:128", None, "building", plan=Plan(rate=3.0))
    assert catalog.spaces.begin_building(again).plan == Plan(rate=3.0, speed=12.5)


def test_a_space_that_is_read_cannot_be_dropped_and_one_that_is_dropped_cannot_be_read(catalog: Catalog) -> None:
    with pytest.raises(UsageError, match="cannot be dropped"):
        catalog.spaces.retire(OLD)
    catalog.spaces.begin_building(BUILDING)
    catalog.write([OLD, NEW], [write(number, [OLD, NEW]) for number in range(3)])
    catalog.spaces.retire(NEW)
    assert states(catalog) == {"hashing-v1": "active", "hashing-v1-128": "dropping"}
    assert [one.space for one in catalog.spaces.written()] == [OLD]
    with pytest.raises(NotReady, match="is dropping"):
        catalog.spaces.switch(NEW)
    with pytest.raises(UsageError, match="being dropped"):
        catalog.spaces.begin_building(BUILDING)
    assert catalog.filling.fill(NEW, [fill(write(7, []), NEW)]) == set()
    last = catalog.filling.delete_chunks(NEW)
    assert last is not None
    assert catalog.filling.delete_chunks(NEW, last) is None
    catalog.spaces.remove(NEW)
    assert states(catalog) == {"hashing-v1": "active"}
    assert catalog.counts().chunks == 3


def test_a_worker_with_a_model_of_no_space_is_refused_naming_both(catalog: Catalog) -> None:
    catalog.spaces.begin_building(BUILDING)
    catalog.spaces.adopt(BUILDING)
    with pytest.raises(ModelError) as caught:
        catalog.spaces.adopt(StoredSpace(OTHER, "hashing:32", None))
    assert "hashing-v1 (64 dimensions" in str(caught.value)
    assert "hashing-v1-32 (32 dimensions" in str(caught.value)
    assert states(catalog) == {"hashing-v1": "active", "hashing-v1-128": "building"}


def test_a_probe_goes_with_any_turn_of_its_evidence_and_others_stay(catalog: Catalog) -> None:
    catalog.write([OLD], [write(number, [OLD]) for number in range(3)])
    asked = [
        Asked("both", "t", "what of one and two?", (("s1", 0), ("s2", 0))),
        Asked("zero", "t", "what of zero?", (("s0", 0),)),
        Asked("unknown", "t", "what of a turn that is not stored?", (("s0", 0), ("s9", 0))),
        Asked("of another tenant", "u", "what of zero?", (("s0", 0),)),
    ]
    assert catalog.probes.keep(asked) == 2
    assert [(one.id, len(one.evidence)) for one in catalog.probes.all()] == [("both", 2), ("zero", 1)]
    catalog.tombstones.bury(Selection("t", "s2"), lambda: entry_order("9-0"), lambda *_: None)
    assert [one.id for one in catalog.probes.all()] == ["zero"]
    assert sorted(content for _, _, content in catalog.probes.sample(5, 3)) == ["turn 0", "turn 1"]
    assert catalog.probes.sample(5, 7) == [], "a short turn says what others say too"
