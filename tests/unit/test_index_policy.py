"""When index maintenance is worth its cost, and which index is built."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.maintenance.index import MAX_SEGMENTS, SCALAR_COLUMNS, index_work, vector_kind
from workers.stores.index_search import IndexSearch
from workers.stores.lance_indexes import IndexFigures, IndexKind, index_config, pq_codes
from workers.stores.vectors import VectorStatistics

NOW = datetime(2026, 11, 29, 12, tzinfo=UTC)
NOW_US = int(NOW.timestamp() * 1_000_000)
DIMENSION = 384
CHECKED = IndexSearch(trained_rows=300_000, checked_rows=300_000, checked_at_us=NOW_US)


def table(
    rows: int, unindexed: int = 0, *, age: timedelta = timedelta(0), vector: IndexFigures | None = None
) -> tuple[VectorStatistics, dict[str, IndexFigures]]:
    """A table with every index that it asks for, but the vectors' only as given."""
    built_at = NOW_US - int(age.total_seconds() * 1_000_000)
    statistics = VectorStatistics(rows, unindexed, fragments=1, size_bytes=0, indexed_at_us=built_at)
    indexes = {"terms": index("full-text", rows, unindexed)}
    indexes |= {column: index("btree", rows, unindexed) for column in SCALAR_COLUMNS}
    return statistics, indexes | ({"vector": vector} if vector else {})


def index(kind: IndexKind, rows: int, unindexed: int = 0, segments: int = 1) -> IndexFigures:
    return IndexFigures(kind, rows - unindexed, unindexed, segments, NOW_US - 1)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (table(0), False),
        (table(10_000, 1024), False),
        (table(10_000, 1025), True),
        (table(100_000, 5_000), False),
        (table(100_000, 5_001), True),
        (table(100, 1, age=timedelta(hours=5)), False),
        (table(100, 1, age=timedelta(hours=7)), True),
        (table(100, 0, age=timedelta(days=9)), False),
        (table(300_000, vector=index("hnsw", 300_000, 15_000)), False),
        (table(300_000, vector=index("hnsw", 300_000, 15_001)), True),
        (table(300_000, vector=index("hnsw", 300_000, 200_000)), False),
    ],
)
def test_rows_are_folded_in_only_past_a_threshold(
    found: tuple[VectorStatistics, dict[str, IndexFigures]], expected: bool
) -> None:
    assert index_work(*found, DIMENSION, CHECKED, now=NOW).fold is expected


@pytest.mark.parametrize(
    ("rows", "dimension", "expected"),
    [
        (0, 384, None),
        (99_999, 384, None),
        (100_000, 384, "hnsw"),
        (100_000, 64, None),
        (600_000, 64, "hnsw"),
        (37_500, 1024, "hnsw"),
        (3_999_999, 384, "hnsw"),
        (4_000_000, 384, "pq"),
        (1_500_000, 1024, "pq"),
    ],
)
def test_the_size_of_the_vectors_chooses_their_index(rows: int, dimension: int, expected: str | None) -> None:
    assert vector_kind(rows, dimension) == expected
    work = index_work(*table(rows), dimension, IndexSearch(), now=NOW)
    assert work.build == ((("vector", expected),) if expected else ())
    assert work.check is bool(expected)


@pytest.mark.parametrize(
    ("rows", "indexed", "expected"),
    [
        (0, set(), ()),
        (1, set(), (("terms", "full-text"),)),
        (19_999, {"terms"}, ()),
        (20_000, {"terms"}, tuple((column, "btree") for column in SCALAR_COLUMNS)),
        (20_000, {"terms", "tenant", "session_id", "turn_key"}, (("vector_id", "btree"),)),
        (20_000, {"terms", *SCALAR_COLUMNS}, ()),
    ],
)
def test_only_missing_indexes_that_pay_are_built(
    rows: int, indexed: set[str], expected: tuple[tuple[str, str], ...]
) -> None:
    statistics, indexes = table(rows)
    kept = {column: found for column, found in indexes.items() if column in indexed}
    work = index_work(statistics, kept, 64, IndexSearch(), now=NOW)
    assert work.build == expected
    assert bool(work) is work.pressing is bool(expected)


@pytest.mark.parametrize(
    ("rows", "vector", "search", "built", "checked"),
    [
        (300_000, index("hnsw", 300_000), CHECKED, False, False),
        (300_000, index("hnsw", 300_000, 150_001), CHECKED, True, True),
        (300_000, index("hnsw", 300_000, segments=MAX_SEGMENTS), CHECKED, False, False),
        (300_000, index("hnsw", 300_000, segments=MAX_SEGMENTS + 1), CHECKED, True, True),
        (600_000, index("hnsw", 600_000), replace(CHECKED, checked_rows=600_000), False, False),
        (600_001, index("hnsw", 600_001), replace(CHECKED, checked_rows=600_000), True, True),
        (300_000, index("hnsw", 300_000), IndexSearch(), False, True),
        (375_001, index("hnsw", 375_001), CHECKED, False, True),
        (300_000, index("hnsw", 300_000), replace(CHECKED, checked_at_us=NOW_US - 8 * 86_400_000_000), False, True),
        (300_000, index("hnsw", 300_000), replace(CHECKED, checked_at_us=NOW_US - 2), False, True),
        (300_000, index("hnsw", 300_000, segments=2), replace(CHECKED, checked_at_us=NOW_US - 2), False, False),
    ],
)
def test_a_vector_index_is_built_anew_or_measured_again_when_it_may_have_got_worse(
    rows: int, vector: IndexFigures, search: IndexSearch, built: bool, checked: bool
) -> None:
    work = index_work(*table(rows, vector=vector), DIMENSION, search, now=NOW)
    assert (work.build, work.check) == ((("vector", "hnsw"),) if built else (), checked)


def test_a_table_that_shrank_keeps_its_index_and_its_kind() -> None:
    small = index("pq", 1_000, 0, segments=MAX_SEGMENTS + 1)
    assert index_work(*table(1_000, vector=small), DIMENSION, CHECKED, now=NOW).build == (("vector", "pq"),)
    assert index_work(*table(1_000, vector=index("pq", 1_000)), DIMENSION, CHECKED, now=NOW).build == ()


@given(st.integers(1, 4096), st.sampled_from([4, 8]))
def test_codes_share_the_dimensions_evenly(dimension: int, per_code: int) -> None:
    codes = pq_codes(dimension, per_code)
    assert dimension % codes == 0
    assert 1 <= codes <= max(1, dimension // per_code)


def test_parameters_follow_rows_and_dimension() -> None:
    assert index_config("hnsw", 200_000, 384).num_partitions == 1
    assert index_config("hnsw", 3_000_000, 384).num_partitions == 3
    pq, fine = (index_config("pq", 4_000_000, 384, fine=fine) for fine in (False, True))
    assert (pq.num_partitions, pq.num_sub_vectors, fine.num_sub_vectors) == (2000, 48, 96)
