"""The files of a LanceDB table on this machine's disk, measured without opening them. Does I/O."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any


def superseded_bytes(table: Any, keep_versions: timedelta) -> int:
    """Bytes of files that the newest version does not use and that were written before `keep_versions`.

    At least these: the newest version's own files may be young as well. 0 where files cannot be listed (object stores).
    """
    since = time.time() - keep_versions.total_seconds()
    old = 0
    for folder, _, names in os.walk(Path(table.uri)):
        for name in names:
            with suppress(FileNotFoundError):  # another process cleans up meanwhile
                found = Path(folder, name).stat()
                old += found.st_size if found.st_mtime < since else 0
    return max(0, old - int(table.stats()["total_bytes"]))
