"""What the index policy chooses for tables of several sizes, what it costs to build, and what it finds. Prints a table.

Vectors are clustered, as those of a language model are; on uniform noise every approximate index looks worse.
"""

from __future__ import annotations

import statistics
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from vector_rows import row
from workers.maintenance.index import Policy, keep_indexes
from workers.maintenance.index_quality import QualityCheck
from workers.stores.lance_schema import VectorRow
from workers.stores.scope import Scope
from workers.stores.space import Space
from workers.stores.spaces import StoredSpace
from workers.stores.vectors import VECTOR, VectorStore

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(3600)]

SPACE = Space("clustered", 384, 256, 32)
ROWS_A_CLUSTER = 200
SPREAD = 0.7
"""Of a cluster, against the distance of its centre from the origin."""
BATCH = 10_000
QUESTIONS = 50
LIMIT = 200
"""What the wide pass of a recall asks for."""


class Clustered:
    """Unit vectors around common centres; each cluster's rows are of one tenant or another."""

    def __init__(self, rows: int) -> None:
        self._rng = np.random.default_rng(1)
        clusters = max(20, rows // ROWS_A_CLUSTER)
        self._centres = self._rng.standard_normal((clusters, SPACE.dimension)).astype(np.float32)

    def draw(self, count: int) -> np.ndarray:
        centres = self._centres[self._rng.integers(len(self._centres), size=count)]
        found = centres + SPREAD * self._rng.standard_normal(centres.shape).astype(np.float32)
        vectors: np.ndarray = found / np.linalg.norm(found, axis=1, keepdims=True)
        return vectors


def fill(store: VectorStore, source: Clustered, rows: int) -> None:
    for first in range(0, rows, BATCH):
        vectors = source.draw(min(BATCH, rows - first))
        store.upsert(SPACE, [chunk(first + place, vector) for place, vector in enumerate(vectors)])


def chunk(number: int, vector: np.ndarray) -> VectorRow:
    tenant = "most" if number % 10 else "few"
    return row(number, f"row {number}", tenant=tenant, session_id=f"s{number % 1000}", vector=vector)


def median_ms(store: VectorStore, questions: np.ndarray, tenant: str, stored: StoredSpace) -> float:
    took = []
    for vector in questions:
        started = time.perf_counter()
        store.dense(SPACE, vector, Scope(tenant), LIMIT, stored.search)
        took.append(1000 * (time.perf_counter() - started))
    return statistics.median(took)


@pytest.mark.parametrize("rows", [1_000, 50_000, 200_000])
def test_index_policy(tmp_path: Path, rows: int) -> None:
    store, source = VectorStore(str(tmp_path)), Clustered(rows)
    fill(store, source, rows)
    store.optimize(SPACE, keep_versions=timedelta(seconds=1))
    questions = source.draw(QUESTIONS)
    stored = StoredSpace(SPACE, "clustered", None)
    before = {tenant: median_ms(store, questions, tenant, stored) for tenant in ("most", "few")}

    kept = [stored.search]
    started = time.perf_counter()
    policy = Policy(timedelta(seconds=1), recall_floor=0.95)
    outcome = keep_indexes(store, stored, policy, now=datetime.now(UTC), save=kept.append)
    seconds = time.perf_counter() - started
    stored = StoredSpace(SPACE, "clustered", None, search=kept[-1])
    after = {tenant: median_ms(store, questions, tenant, stored) for tenant in ("most", "few")}
    recall = QualityCheck(store, SPACE).measure(stored.search).recall

    vector = store.indexes(SPACE).get(VECTOR)
    print(f"\n| {rows:,} | {vector.kind if vector else 'none, exact'} | {seconds:.0f} s | {recall:.3f} |", end="")
    print("".join(f" {before[tenant]:.0f} → {after[tenant]:.0f} ms |" for tenant in ("most", "few")))
    print(outcome.did)
