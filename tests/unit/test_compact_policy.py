"""When compaction is worth its cost, and what several spaces' runs come to."""

from __future__ import annotations

import pytest

from workers.maintenance.compact import compact_reasons
from workers.maintenance.every_space import together
from workers.maintenance.index_quality import share_found
from workers.maintenance.job import Outcome
from workers.stores.index_search import IndexSearch
from workers.stores.vectors import VectorStatistics

MIB = 1 << 20


def figures(rows: int, fragments: int = 1, *, deleted: int = 0, size: int = 0) -> VectorStatistics:
    return VectorStatistics(rows, 0, fragments, size, deleted_rows=deleted)


@pytest.mark.parametrize(
    ("statistics", "superseded", "expected"),
    [
        (figures(0, 0), 0, ()),
        (figures(10_000, 48), 0, ()),
        (figures(10_000, 49), 0, ("49 fragments",)),
        (figures(1_000_000, 244), 0, ()),
        (figures(1_000_000, 245), 0, ("245 fragments",)),
        (figures(900, deleted=100), 0, ()),
        (figures(899, deleted=101), 0, ("101 deleted rows",)),
        (figures(0, deleted=5), 0, ("5 deleted rows",)),
        (figures(10, size=MIB), 8 * MIB, ()),
        (figures(10, size=MIB), 9 * MIB, ("9.0 MiB of old files",)),
        (figures(10, size=100 * MIB), 25 * MIB, ()),
        (figures(10, size=100 * MIB), 26 * MIB, ("26.0 MiB of old files",)),
        (figures(10, 49, deleted=9), 9 * MIB, ("49 fragments", "9 deleted rows", "9.0 MiB of old files")),
    ],
)
def test_a_table_is_compacted_only_for_a_reason(
    statistics: VectorStatistics, superseded: int, expected: tuple[str, ...]
) -> None:
    assert compact_reasons(statistics, superseded) == expected


def test_outcomes_of_several_spaces_are_told_apart_and_one_is_as_it_was() -> None:
    one = Outcome("folded", {"rows": 1}, {"rows": 1})
    assert together({"a": one}) is one
    assert together({}) == Outcome(None)
    both = together({"a": one, "b": Outcome(None, {"rows": 2}, {"rows": 2}, problem="the disk is full")})
    assert both.did == "a: folded"
    assert both.problem == "the disk is full"
    assert both.after == {"a: rows": 1, "b: rows": 2}


@pytest.mark.parametrize(
    ("scores", "exact", "expected"),
    [
        ([], [], 1.0),
        ([0.9, 0.8], [0.9, 0.8], 1.0),
        ([0.9, 0.7], [0.9, 0.8], 0.5),
        ([], [0.9], 0.0),
        ([0.8, 0.8], [0.8, 0.8], 1.0),
        ([0.799999], [0.8], 1.0),
    ],
)
def test_recall_counts_answers_that_are_as_near_as_the_last_exact_one(
    scores: list[float], exact: list[float], expected: float
) -> None:
    assert share_found(scores, exact) == expected


def test_how_an_index_is_asked_is_kept_as_text_that_other_versions_can_read() -> None:
    search = IndexSearch(ef=600, trained_rows=5, recall=0.97)
    assert IndexSearch.from_text(search.as_text()) == search
    assert IndexSearch.from_text(None) == IndexSearch()
    assert IndexSearch.from_text('{"ef": 7, "of a later version": 1}') == IndexSearch(ef=7)
