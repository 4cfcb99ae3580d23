"""Where this data dir's query service answers: a small file that it writes when it listens. Does I/O on that file.

Light, so that a client on the same machine finds the service without being told.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path

API_FILE = "api.json"


def write_api_file(data_dir: Path, url: str) -> None:
    """Say that this process answers at `url`. Raises `OSError`."""
    data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    partial = data_dir / f".{API_FILE}.partial"
    partial.write_text(json.dumps({"url": url, "pid": os.getpid()}), encoding="utf-8")
    partial.replace(data_dir / API_FILE)


def remove_api_file(data_dir: Path) -> None:
    """Take it back; what another service has written since stays."""
    with suppress(OSError):
        if _read(data_dir).get("pid") == os.getpid():
            (data_dir / API_FILE).unlink()


def api_url(data_dir: Path) -> str | None:
    """The URL of the service that runs on this machine for this data dir; None when none does."""
    found = _read(data_dir)
    url, pid = found.get("url"), found.get("pid")
    return url if isinstance(url, str) and isinstance(pid, int) and _runs(pid) else None


def _read(data_dir: Path) -> dict[str, object]:
    try:
        found = json.loads((data_dir / API_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except PermissionError:  # another user's
        return True
    except (OSError, OverflowError):
        return False
    return pid > 0
