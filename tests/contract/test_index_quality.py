"""A vector index that finds too little, on a real LanceDB table: it is asked better, then built better, and says so."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from vector_rows import NOW, SPACE, row
from workers.maintenance import index, index_quality
from workers.maintenance.index_quality import QualityCheck
from workers.maintenance.job import Outcome
from workers.stores import lance_indexes
from workers.stores.index_search import IndexSearch
from workers.stores.scope import Scope
from workers.stores.spaces import StoredSpace
from workers.stores.vectors import VECTOR, VectorStore

pytestmark = pytest.mark.contract

ROWS = 600
KIND: lance_indexes.IndexKind = "pq"


@pytest.fixture
def store(tmp_path: Path) -> VectorStore:
    store = VectorStore(str(tmp_path / "vectors"))
    store.upsert(SPACE, [row(number, tenant=f"t{number % 2}") for number in range(ROWS)])
    return store


@pytest.fixture(autouse=True)
def coarse(monkeypatch: pytest.MonkeyPatch) -> None:
    """Codes of one byte for a whole vector, and a single list in many that is looked into."""
    monkeypatch.setattr(index, "vector_kind", lambda rows, dimension: KIND)
    monkeypatch.setattr(lance_indexes, "DIMENSIONS_PER_CODE", SPACE.dimension)
    monkeypatch.setattr(lance_indexes, "FINE_DIMENSIONS_PER_CODE", 1)


def keep(store: VectorStore, floor: float, search: IndexSearch | None = None) -> tuple[Outcome, list[IndexSearch]]:
    """The job's outcome, and what it had the catalog keep."""
    saved: list[IndexSearch] = []
    stored = StoredSpace(SPACE, "test", None, search=search or IndexSearch())
    policy = index.Policy(timedelta(minutes=10), floor)
    return index.keep_indexes(store, stored, policy, now=NOW, save=saved.append), saved


def steps(monkeypatch: pytest.MonkeyPatch, *searches: IndexSearch) -> None:
    monkeypatch.setitem(index_quality.STEPS, KIND, searches)


def test_a_good_index_is_measured_and_asked_as_by_default(store: VectorStore, monkeypatch: pytest.MonkeyPatch) -> None:
    steps(monkeypatch, IndexSearch(refine=300, nprobes=99))
    outcome, saved = keep(store, 0.95)
    assert "built the pq index of vector; recall@50 1.000 with refine 300, nprobes 99" in (outcome.did or "")
    assert saved[-1].recall == outcome.after["recall"] == 1.0
    assert (saved[-1].trained_rows, saved[-1].checked_rows, saved[-1].fine) == (ROWS, ROWS, False)
    assert outcome.after["exact_ms"] > 0
    assert keep(store, 0.95, saved[-1])[0].did is None


def test_below_the_floor_it_is_asked_more_thoroughly(store: VectorStore, monkeypatch: pytest.MonkeyPatch) -> None:
    steps(monkeypatch, IndexSearch(refine=1, nprobes=1), IndexSearch(refine=300, nprobes=99))
    check = QualityCheck(store, SPACE)
    outcome, saved = keep(store, 0.95)
    assert (saved[-1].refine, saved[-1].nprobes, saved[-1].fine) == (300, 99, False)
    assert check.measure(IndexSearch(refine=1, nprobes=1)).recall < 0.9
    assert check.measure(saved[-1]).recall == 1.0
    assert "anew" not in (outcome.did or "")


def test_then_it_is_built_anew_and_what_cannot_be_reached_is_said(
    store: VectorStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps(monkeypatch, IndexSearch(refine=1, nprobes=1))
    builds: list[bool] = []
    build = store.build_index

    def counted(*args: Any, fine: bool = False) -> None:
        builds.append(fine)
        build(*args, fine=fine)

    monkeypatch.setattr(store, "build_index", counted)
    outcome, saved = keep(store, 1.0)
    assert builds == [False, True]
    assert "built the vectors' index anew, finer" in (outcome.did or "")
    assert "below index_recall_floor 1.0" in (outcome.did or "")
    assert saved[-1].fine
    assert saved[-1].recall is not None
    assert saved[-1].recall < 1.0
    assert keep(store, 1.0, saved[-1])[0].did is None, "it is not built again and again"


def test_how_it_is_asked_decides_what_a_search_finds(store: VectorStore) -> None:
    store.build_index(SPACE, VECTOR, KIND)
    question = store.sample(SPACE, 1, seed=3)[0]
    exact, poor, good = (
        [one.vector_id for one in store.dense(SPACE, question.vector, Scope(question.tenant), 50, how, exact=exact)]
        for how, exact in (
            (IndexSearch(), True),
            (IndexSearch(refine=1, nprobes=1), False),
            (IndexSearch(refine=300, nprobes=99), False),
        )
    )
    assert good == exact
    assert poor != exact


def test_a_graph_may_be_asked_for_more_than_it_keeps_by_default(store: VectorStore) -> None:
    store.build_index(SPACE, VECTOR, "hnsw")
    for search in (IndexSearch(ef=1), IndexSearch(refine=8, ef=10_000), *index_quality.STEPS["hnsw"]):
        assert len(store.dense(SPACE, row(0).vector, Scope("t0"), 200, search)) == 200


def test_a_sample_is_of_stored_rows_and_the_same_each_time(store: VectorStore) -> None:
    sample = store.sample(SPACE, 20, seed=7)
    vectors = np.stack([row(number).vector for number in range(ROWS)])
    places = [int(np.flatnonzero((vectors == one.vector).all(axis=1))[0]) for one in sample]
    assert len(set(places)) == 20
    assert [one.tenant for one in sample] == [f"t{place % 2}" for place in places]
    again = store.sample(SPACE, 20, seed=7)
    assert all(np.array_equal(one.vector, other.vector) for one, other in zip(sample, again, strict=True))
    assert len(store.sample(SPACE, 10_000, seed=7)) == ROWS
    assert VectorStore(store.location + "-none").sample(SPACE, 5, seed=7) == []
