"""What workers ask for between the scheduled runs, and that recall asks an index as the job has found best."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import redis

from producers.connection import connect
from producers.settings import Settings
from query.candidates import CandidateSearch
from table_under_load import SPACE, Load
from workers.embedding.hashing import HashingEmbedder
from workers.maintenance import compact, index
from workers.maintenance.run import run_job
from workers.queues import MAINTENANCE, rq_queue, use_prefix
from workers.stores.catalog import Catalog
from workers.stores.index_search import IndexSearch
from workers.stores.scope import Scope
from workers.stores.space import Space
from workers.stores.spaces import StoredSpace
from workers.stores.vectors import Candidate, VectorStore
from workers.upkeep import BATCHES, Upkeep

pytestmark = pytest.mark.integration


@pytest.fixture
def client(shared_settings: Settings) -> Iterator[redis.Redis]:
    use_prefix(shared_settings)
    with connect(shared_settings) as client:
        yield client


@pytest.fixture
def catalog(shared_settings: Settings) -> Iterator[Catalog]:
    catalog = Catalog.open(shared_settings.catalog_location, create=True)
    catalog.spaces.adopt(StoredSpace(SPACE, "hashing", None))
    yield catalog
    catalog.close()


def requested(settings: Settings, client: redis.Redis, load: Load) -> list[tuple[Any, ...]]:
    """The jobs that a worker enqueues after as many batches as it lets pass between two looks."""
    upkeep = Upkeep(client, settings, load.store, SPACE)
    for _ in range(BATCHES):
        upkeep.after_batch()
    return [job.args for job in rq_queue(MAINTENANCE, client, settings).jobs]


@pytest.mark.parametrize(
    ("fragments", "unindexed", "expected"), [(1000, 1000, []), (3, 1000, ["compact"]), (3, 8, ["index"])]
)
def test_a_worker_asks_for_the_one_job_that_is_due(
    shared_settings: Settings,
    client: redis.Redis,
    monkeypatch: pytest.MonkeyPatch,
    fragments: int,
    unindexed: int,
    expected: list[str],
) -> None:
    monkeypatch.setattr(compact, "MAX_FRAGMENTS", fragments)
    monkeypatch.setattr(index, "MIN_UNINDEXED", unindexed)
    load = Load(VectorStore(shared_settings.vectors_location))
    load.append(20, 4)
    for _ in range(2):  # a second request while the first one waits changes nothing
        assert requested(shared_settings, client, load) == [[name] for name in expected]


def test_both_jobs_go_over_every_stored_space(
    shared_settings: Settings, client: redis.Redis, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compact, "MAX_FRAGMENTS", 3)
    monkeypatch.setattr(index, "SCALAR_INDEX_MIN_ROWS", 10)
    load = Load(VectorStore(shared_settings.vectors_location))
    load.append(20, 4)
    with connect(shared_settings) as client:
        compacted = run_job("compact", shared_settings, client)
        assert compacted.did is not None
        assert (compacted.before["fragments"], compacted.after["fragments"]) == (5, 2)
        other = StoredSpace(Space("another", 8, 64, 8), "another", None, "building")
        monkeypatch.setattr(type(catalog.spaces), "all", lambda spaces: [StoredSpace(SPACE, "hashing", None), other])
        indexed = run_job("index", shared_settings, client)
    assert indexed.did is not None
    assert indexed.did.startswith(f"{SPACE.id}: built the btree index of vector_id")
    assert indexed.after[f"{SPACE.id}: rows"] == 20
    assert indexed.after[f"{other.space.id}: rows"] == 0


def test_recall_asks_the_index_as_the_job_has_last_found_best(
    shared_settings: Settings, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[IndexSearch] = []

    def dense(self: VectorStore, space: Space, vector: np.ndarray, scope: Scope, limit: int, how: IndexSearch) -> Any:
        asked.append(how)
        return list[Candidate]()

    monkeypatch.setattr(VectorStore, "dense", dense)
    search = CandidateSearch(catalog, VectorStore(shared_settings.vectors_location), SPACE, HashingEmbedder)
    search.gather("hello", Scope("t"), 5)
    catalog.spaces.set_search(SPACE, IndexSearch(refine=8, ef=600))
    search.gather("hello", Scope("t"), 5)
    assert asked == [IndexSearch(), IndexSearch(refine=8, ef=600)]
