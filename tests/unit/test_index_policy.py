"""When index maintenance is worth its cost."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from workers.maintenance.index import SCALAR_COLUMNS, index_work
from workers.stores.vectors import VectorStatistics

NOW = datetime(2026, 11, 29, 12, tzinfo=UTC)
SCALAR = frozenset(SCALAR_COLUMNS)


def figures(rows: int, unindexed: int, fragments: int, *, age: timedelta = timedelta(0)) -> VectorStatistics:
    indexed_at = int((NOW - age).timestamp() * 1_000_000)
    return VectorStatistics(rows, unindexed, fragments, size_bytes=0, indexed_at_us=indexed_at)


@pytest.mark.parametrize(
    ("statistics", "expected"),
    [
        (figures(0, 0, 0), False),
        (figures(10_000, 0, 1), False),
        (figures(10_000, 1024, 48), False),
        (figures(10_000, 100, 49), True),
        (figures(10_000, 1025, 1), True),
        (figures(1_000_000, 50_000, 244), False),
        (figures(1_000_000, 50_001, 1), True),
        (figures(1_000_000, 10, 245), True),
        (figures(100, 1, 2, age=timedelta(hours=5)), False),
        (figures(100, 1, 2, age=timedelta(hours=7)), True),
        (figures(100, 0, 2, age=timedelta(days=9)), False),
    ],
)
def test_a_table_is_optimized_only_past_a_threshold(statistics: VectorStatistics, expected: bool) -> None:
    assert index_work(statistics, frozenset({"terms", "vector"}) | SCALAR, now=NOW).optimize is expected


@pytest.mark.parametrize(
    ("rows", "indexed", "expected"),
    [
        (0, frozenset(), ()),
        (1, frozenset(), (("terms", "full-text"),)),
        (19_999, frozenset({"terms"}), ()),
        (20_000, frozenset({"terms"}), tuple((column, "btree") for column in SCALAR_COLUMNS)),
        (20_000, frozenset({"terms", "tenant", "session_id", "turn_key"}), (("vector_id", "btree"),)),
        (199_999, frozenset({"terms"}) | SCALAR, ()),
        (200_000, frozenset({"terms"}) | SCALAR, (("vector", "hnsw"),)),
        (200_000, frozenset({"terms", "vector"}) | SCALAR, ()),
    ],
)
def test_only_missing_indexes_that_pay_are_built(
    rows: int, indexed: frozenset[str], expected: tuple[tuple[str, str], ...]
) -> None:
    work = index_work(figures(rows, 0, 1), indexed, now=NOW)
    assert work.build == expected
    assert bool(work) is bool(expected)
