"""Named points on the path of a turn at which the crash tests kill a process. No I/O unless `SRH_CRASH_ORDERS` is set.

The variable names a folder of orders, one file a point (`Order.put`). The first process that passes the point often
enough takes the order away and carries it out, so that each order kills once, whatever is started again afterwards.
It is no setting, has no `SCOPE_RECALL_` name, and is for tests/faults only.
"""

from __future__ import annotations

import json
import os
import signal
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path

from producers.errors import SettingsError

VARIABLE = "SRH_CRASH_ORDERS"


class Point(StrEnum):
    """Where a process can be killed, in the order in which a turn passes."""

    AFTER_XADD = "after-xadd"
    """Producer: Redis has the events, and the caller of `append` does not know it yet."""
    AFTER_READ = "after-read"
    """Intake: entries are read, and wait in its memory only."""
    AFTER_ENQUEUE = "after-enqueue"
    """Intake: RQ has the job."""
    AFTER_CHUNKING = "after-chunking"
    """Worker: nothing is written."""
    MID_EMBEDDING = "mid-embedding"
    """Worker: vectors are computed and not handed on. All of embedding leaves the same on disk: nothing."""
    AFTER_CATALOG_COMMIT = "after-catalog-commit"
    """Worker: turns and chunks are in the catalog, pending."""
    MID_LANCE_UPSERT = "mid-lance-upsert"
    """Worker: LanceDB is about to write; `Order.after_ms` decides how far it comes."""
    AFTER_LANCE_UPSERT = "after-lance-upsert"
    """Worker: both stores hold the batch, and the catalog still calls it pending."""
    AFTER_INDEXED = "after-indexed"
    """Worker: the catalog calls it indexed, and its entries are not acknowledged."""
    AFTER_ACK = "after-ack"
    """Worker: the entries are acknowledged and deleted, and RQ does not know that the job is done."""


@dataclass(frozen=True)
class Order:
    """Whom to kill, and when."""

    passage: int = 1
    """Carried out when a process passes for the n-th time since the order was put there."""
    pid: int | None = None
    """The process to kill; None: the one that passes."""
    after_ms: float = 0.0
    """Milliseconds to wait after passing, while the process goes on."""

    def put(self, folder: Path, point: Point) -> Path:
        """Write the order; returns its file, which disappears when the order is carried out."""
        path = folder / point
        partial = folder / f".{point}"
        partial.write_text(json.dumps(asdict(self)), encoding="utf-8")
        return partial.replace(path)


class Orders:
    """The orders in one folder. Raises `SettingsError` when there is no such folder, or a file that names no point."""

    def __init__(self, folder: Path) -> None:
        if not folder.is_dir():
            raise SettingsError(f"{VARIABLE}={folder}: not a folder; it must hold one file a crash point")
        known = ", ".join(Point)
        for name in (path.name for path in folder.iterdir() if not path.name.startswith(".")):
            if name not in set(Point):
                raise SettingsError(f"{VARIABLE}={folder}: {name!r} is no crash point; they are {known}")
        self._folder = folder
        self._passages: Counter[tuple[str, int]] = Counter()
        self._lock = threading.Lock()

    def reached(self, point: Point) -> None:
        """Carry out the order of this point, if there is one and it is time."""
        path = self._folder / point
        with self._lock, suppress(FileNotFoundError):  # no order, or another process has taken it
            this_order = (point, path.stat().st_mtime_ns)
            order = Order(**json.loads(path.read_text(encoding="utf-8")))
            self._passages[this_order] += 1
            if self._passages[this_order] < order.passage:
                return
            path.unlink()
            _kill(order.pid or os.getpid(), order.after_ms / 1000)


def _kill(pid: int, after: float) -> None:
    def strike() -> None:
        with suppress(ProcessLookupError):  # it has ended by itself
            os.kill(pid, signal.SIGKILL)

    if not after:
        strike()
        return
    timer = threading.Timer(after, strike)
    timer.daemon = True
    timer.start()


def _pass_by(point: Point) -> None:
    """What `reached` is outside the crash tests: nothing."""


_folder = os.environ.get(VARIABLE)
reached: Callable[[Point], None] = Orders(Path(_folder)).reached if _folder else _pass_by
"""Called where a point is passed. Chosen once, at import."""
