"""Compaction and indexing of a table that is written and asked meanwhile: nothing fails, no row is missing.

`tests/faults/test_maintenance_storm.py` does the same at a hundred times the size.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from maintenance_storm import Storm, weather

pytestmark = [pytest.mark.contract, pytest.mark.timeout(180)]

SMALL = Storm(
    rows=1_600,
    batch=40,
    changed=200,
    meanwhile=400,
    thresholds={
        "compact.MAX_FRAGMENTS": 8,
        "compact.MIN_SUPERSEDED_BYTES": 1 << 17,
        "index.MIN_UNINDEXED": 200,
        "index.SCALAR_INDEX_MIN_ROWS": 1_000,
        "index.VECTOR_INDEX_MIN_BYTES": 1_000 * 64 * 4,
    },
)


def test_a_table_is_kept_small_and_fast_while_it_is_written_and_asked(tmp_path: Path) -> None:
    weather(SMALL, tmp_path)
