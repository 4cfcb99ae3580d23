"""Intake's pure decisions: batches within their limits, job ids, redelivery sizes, stream order."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.intake import cut_batches, redelivery_size
from workers.ledger import Entry
from workers.order import entry_order
from workers.queues import batch_job_id


def entries(*sizes: int) -> list[Entry]:
    return [
        Entry(id=f"{number}-0", payload=b"x" * size, order=entry_order(f"{number}-0"))
        for number, size in enumerate(sizes)
    ]


@pytest.mark.parametrize(
    ("sizes", "max_entries", "max_bytes", "expected"),
    [
        ([], 3, 100, []),
        ([1, 1, 1, 1], 3, 100, [3, 1]),
        ([60, 60, 60], 3, 100, [1, 1, 1]),
        ([50, 50, 1], 3, 100, [2, 1]),
        ([500, 1], 3, 100, [1, 1]),
        ([1, 500, 1], 3, 100, [1, 1, 1]),
    ],
)
def test_batches_keep_both_limits(sizes: list[int], max_entries: int, max_bytes: int, expected: list[int]) -> None:
    assert [len(batch) for batch in cut_batches(entries(*sizes), max_entries, max_bytes)] == expected


@given(st.lists(st.integers(0, 200), max_size=60), st.integers(1, 10), st.integers(1, 300))
def test_no_entry_is_lost_or_moved_by_cutting(sizes: list[int], max_entries: int, max_bytes: int) -> None:
    given_entries = entries(*sizes)
    batches = cut_batches(given_entries, max_entries, max_bytes)
    assert [entry for batch in batches for entry in batch] == given_entries
    for batch in batches:
        assert 1 <= len(batch) <= max_entries
        assert len(batch) == 1 or sum(len(entry.payload) for entry in batch) <= max_bytes


def test_the_same_batch_is_the_same_job_and_another_delivery_is_not() -> None:
    assert batch_job_id("live", ["1-0", "2-0"], 1) == batch_job_id("live", ["1-0", "2-0"], 1)
    different = {
        batch_job_id("live", ["1-0", "2-0"], 1),
        batch_job_id("live", ["1-0", "2-0"], 2),
        batch_job_id("live", ["1-0"], 1),
        batch_job_id("backfill", ["1-0", "2-0"], 1),
    }
    assert len(different) == 4


def test_a_redelivered_batch_shrinks_until_poison_is_alone() -> None:
    sizes = [redelivery_size(256, delivery, 5) for delivery in range(1, 7)]
    assert sizes == [256, 64, 16, 4, 1, 1]
    assert redelivery_size(256, 2, 2) == 1


@given(st.tuples(st.integers(0, 2**62), st.integers(0, 2**62)), st.tuples(st.integers(0, 2**62), st.integers(0, 2**62)))
def test_stream_order_as_text_is_stream_order(a: tuple[int, int], b: tuple[int, int]) -> None:
    assert (entry_order(f"{a[0]}-{a[1]}") < entry_order(f"{b[0]}-{b[1]}")) == (a < b)
