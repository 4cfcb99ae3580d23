"""200,000 chunks in small batches, with updates and deletes, compacted and indexed while they are asked for."""

from __future__ import annotations

from pathlib import Path

import pytest

from maintenance_storm import Storm, weather

pytestmark = [pytest.mark.storm, pytest.mark.timeout(3600)]

LARGE = Storm(
    rows=200_000,
    batch=500,
    changed=20_000,
    meanwhile=20_000,
    thresholds={"index.VECTOR_INDEX_MIN_BYTES": 100_000 * 64 * 4},  # so that there is a vector index to be kept as well
)


def test_200_000_chunks_are_compacted_while_they_are_asked_for(tmp_path: Path) -> None:
    weather(LARGE, tmp_path)
