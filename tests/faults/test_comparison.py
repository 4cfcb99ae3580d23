"""The comparison itself: it must see a turn, a chunk or a vector that is missing, too many, or not what was pushed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import sqlalchemy as sa
from comparison import Stored, Tally
from harness import SETTINGS
from known_turns import known_turn

from producers.settings import Settings, load_settings
from workers.embedding.registry import load_embedder
from workers.ingest import Arrival, Pipeline
from workers.order import entry_order
from workers.runtime import space_of
from workers.stores.catalog import Catalog
from workers.stores.spaces import StoredSpace
from workers.stores.tables import chunks, turns
from workers.stores.vectors import VectorStore

TURNS = 12


class Stores:
    """Both stores, filled without a stream."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        embedder = load_embedder(settings.embedder, settings)
        self.space = space_of(embedder, settings)
        self.catalog = Catalog.open(settings.catalog_location, create=True)
        self.catalog.spaces.adopt(StoredSpace(self.space, settings.embedder, embedder.scripts))
        self.vectors = VectorStore(settings.vectors_location)
        pipeline = Pipeline(self.catalog, self.vectors, embedder, self.space)
        pipeline.store([Arrival(known_turn(number), entry_order(f"{number + 1}-0")) for number in range(TURNS)])

    def change_catalog(self, statement: sa.Executable) -> None:
        with self.catalog._engine.begin() as connection:
            connection.execute(statement)

    def change_vectors(self, change: Callable[[object], object]) -> None:
        self.vectors._lance.write(self.space, change)

    def tally(self) -> Tally:
        return Stored(self.settings).tally(range(TURNS))


@pytest.fixture
def stores(tmp_path: Path) -> Stores:
    (tmp_path / "data").mkdir()
    return Stores(load_settings(data_dir=tmp_path / "data", **SETTINGS))


KEY = known_turn(3).key


def test_what_is_stored_exactly_is_found_exact_and_recalled(stores: Stores) -> None:
    stored = Stored(stores.settings)
    assert stores.tally() == Tally("all", "all", 1, TURNS, TURNS, 0)
    assert stored.strangers(range(TURNS)) == (0, 0, 0)
    assert stored.not_recalled(range(TURNS)) == []


@pytest.mark.parametrize(
    "damage",
    [
        sa.delete(turns).where(turns.c.turn_key == KEY),
        sa.delete(chunks).where(chunks.c.turn_key == KEY),
        sa.update(turns).where(turns.c.turn_key == KEY).values(content="something else"),
        sa.update(turns).where(turns.c.turn_key == KEY).values(state="pending"),
    ],
    ids=["turn gone", "chunks gone", "other content", "pending"],
)
def test_a_damaged_catalog_counts_as_a_loss(stores: Stores, damage: sa.Executable) -> None:
    stores.change_catalog(damage)
    assert stores.tally().lost == 1


def test_a_missing_vector_counts_as_a_loss_and_recall_is_seen_to_miss_it(stores: Stores) -> None:
    stores.change_vectors(lambda table: table.delete(f"turn_key = '{KEY}'"))
    assert stores.tally().lost == 1
    assert Stored(stores.settings).not_recalled(range(TURNS)) == [3]


def test_a_vector_that_is_there_twice_counts_as_a_duplicate(stores: Stores) -> None:
    stores.change_vectors(lambda table: table.add(table.search().where(f"turn_key = '{KEY}'").to_arrow()))
    assert (stores.tally().lost, stores.tally().duplicates) == (0, 1)


def test_what_nobody_pushed_is_a_stranger_in_each_store(stores: Stores) -> None:
    assert Stored(stores.settings).strangers(range(TURNS - 1)) == (1, 1, 1)
