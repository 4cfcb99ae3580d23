"""How the key space is cut for the comparison of both stores, and what is said of a table that lacks rows."""

from __future__ import annotations

import hashlib
from itertools import pairwise

import pytest

from workers.completeness import judge
from workers.maintenance import reconcile
from workers.maintenance.reconcile import key_ranges


@pytest.mark.parametrize(("keys", "count"), [(0, 1), (1, 1), (50_000, 1), (50_001, 2), (1_000_000, 20)])
def test_ranges_follow_one_another_from_no_bound_to_no_bound(keys: int, count: int) -> None:
    ranges = list(key_ranges(keys))
    assert len(ranges) == count
    assert (ranges[0].low, ranges[-1].high) == (None, None)
    assert all(one.high == other.low for one, other in pairwise(ranges))


def test_a_million_keys_are_never_in_memory_at_once() -> None:
    ids = sorted(hashlib.sha256(str(number).encode()).hexdigest()[:32] for number in range(100_000))
    for keys in key_ranges(len(ids)):
        held = sum((keys.low or "") <= one and (keys.high is None or one < keys.high) for one in ids)
        assert held < 1.1 * reconcile.RANGE_KEYS


@pytest.mark.parametrize(
    ("rows", "chunks", "said"),
    [
        (None, 0, None),
        (0, 0, None),
        (5, 5, None),
        (7, 5, None),
        (4, 5, "has 4 rows for 5 chunks"),
        (0, 5, "has 0 rows for 5 chunks"),
        (None, 5, "is gone, so none of 5 chunks is found"),
    ],
)
def test_what_is_said_of_a_table(rows: int | None, chunks: int, said: str | None) -> None:
    found = judge(rows, chunks)
    assert (found is None) if said is None else (said in str(found))
