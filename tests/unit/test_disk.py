"""Which disks hold a system's data, and what is said when they are nearly full."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from producers.high_water import MEMORY_SHARE, over_high_water
from producers.settings import load_settings
from workers.disk import disks, free_bytes
from workers.health import checks

OTHER_DISK = Path("/proc")
"""A file system of its own, without room, on every Linux."""


@pytest.mark.parametrize(
    "elsewhere", [{"vectors_uri": str(OTHER_DISK)}, {"catalog_url": f"sqlite:///{OTHER_DISK}/catalog.db?timeout=5"}]
)
def test_a_store_on_another_disk_is_looked_at_by_itself(tmp_path: Path, elsewhere: dict[str, Any]) -> None:
    settings = load_settings(data_dir=tmp_path / "not" / "made", **elsewhere)
    assert list(disks(settings)) == [settings.data_dir, OTHER_DISK]
    (check,) = [check for check in checks(settings) if check.found == f"{OTHER_DISK}: 0.0 MiB free"]
    assert (check.name, check.ok) == ("disk space", None)
    assert "free space" in check.advice


@pytest.mark.parametrize("elsewhere", [{}, {"vectors_uri": "s3://bucket/v", "catalog_url": "postgresql://host/memory"}])
def test_one_disk_is_shown_once_and_what_is_not_on_this_machine_not_at_all(
    tmp_path: Path, elsewhere: dict[str, Any]
) -> None:
    settings = load_settings(data_dir=tmp_path, **elsewhere)
    assert list(disks(settings)) == [tmp_path]
    assert free_bytes("s3://bucket/vectors") is None


@pytest.mark.parametrize(
    ("length", "memory", "says"),
    [
        (0, {"used_memory": 1}, None),
        (10, {"used_memory": 1}, "10 entries wait, high_water is 10"),
        (0, {"used_memory": 5000}, "high_water_bytes is 5,000"),
        (0, {"used_memory": 800, "maxmemory": 1000}, f"{MEMORY_SHARE:.0%} or more of its maxmemory 1,000"),
        (0, {"used_memory": 799, "maxmemory": 1000}, None),
        (0, {"used_memory": 799, "maxmemory": 0}, None),
    ],
)
def test_an_append_waits_for_room_in_the_stream_and_in_redis(
    tmp_path: Path, length: int, memory: dict[str, int], says: str | None
) -> None:
    settings = load_settings(data_dir=tmp_path, high_water=10, high_water_bytes=5000)
    reason = over_high_water("live", length, memory, settings)
    assert reason is None if says is None else says in str(reason)
