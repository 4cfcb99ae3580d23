"""Room on the disks that hold a system's data: where they are, and how much is left. Does I/O: asks the file system."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from producers.settings import Settings

NEARLY_FULL_BYTES = 64 << 20
"""Below it the system is degraded: a burst of turns, a restart of Redis or a compaction may need as much."""
_SQLITE_FILE = re.compile(r"sqlite(?:\+\w+)?:///([^?]+)")


def free_bytes(location: str | Path) -> int | None:
    """Bytes that may still be written at a path, which need not exist yet; None for an object store's URI."""
    return None if "://" in str(location) else shutil.disk_usage(_existing(Path(location))).free


def disks(settings: Settings) -> dict[Path, int]:
    """Free bytes by folder: the data dir, and what of Redis, catalog and vectors lies on another disk of this host."""
    catalog = _SQLITE_FILE.match(settings.catalog_url or "")
    places = [settings.data_dir, settings.data_dir / "redis", settings.data_dir / "spool"]
    places += [Path(catalog[1]).parent] if catalog else []
    places += [] if "://" in settings.vectors_location else [Path(settings.vectors_location)]
    found: dict[int, Path] = {}
    for place in places:
        found.setdefault(_existing(place).stat().st_dev, place)
    return {place: shutil.disk_usage(_existing(place)).free for place in found.values()}


def shown_size(count: int) -> str:
    """Bytes as people read them."""
    return f"{count / (1 << 30):.1f} GiB" if count >= 1 << 30 else f"{count / (1 << 20):.1f} MiB"


def _existing(path: Path) -> Path:
    return next(parent for parent in (path.absolute(), *path.absolute().parents) if parent.exists())
