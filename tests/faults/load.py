"""Watches a running system under load: a sample a second of its workers' memory and of what waits where. Does I/O."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import psutil

from producers.connection import connect
from producers.keys import GROUP, Keys
from producers.settings import LANES, Settings
from workers.queues import rq_queue
from workers.supervision.tree_state import load_state

SECONDS = 1.0
"""Between two samples."""
QUARTERS = 4
MEBIBYTE = 1 << 20


@dataclass(frozen=True)
class Sample:
    """One look at the system; bytes and entries, both lanes together."""

    stored: int
    """Turns stored so far."""
    length: int
    pending: int
    queued: int
    redis: int
    """Redis' used_memory."""
    workers: dict[str, int]
    """RSS by worker."""


class Watch:
    """Takes samples from entry to exit, in a thread. Raises at the exit what went wrong in it."""

    def __init__(self, settings: Settings, seconds: float = SECONDS) -> None:
        self._settings = settings
        self._seconds = seconds
        self._keys = Keys(settings.key_prefix)
        self._client: Any = connect(settings)
        self._queues = [rq_queue(lane, self._client, settings) for lane in LANES]
        self._done = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._watch, name="watch")
        self.samples: list[Sample] = []

    def __enter__(self) -> Self:
        self.samples.append(self.look())
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._done.set()
        self._thread.join()
        self.samples.append(self.look())
        self._client.close()
        if self._error is not None and error is None:
            raise self._error

    def look(self) -> Sample:
        """The system as it is now."""
        with self._client.pipeline(transaction=True) as pipeline:
            for lane in LANES:
                pipeline.xlen(self._keys.stream(lane))
                pipeline.xpending(self._keys.stream(lane), GROUP)
            pipeline.hgetall(self._keys.counters)
            pipeline.info("memory")
            *waiting, counters, memory = pipeline.execute()
        return Sample(
            stored=sum(int(counters.get(outcome, 0)) for outcome in (b"new", b"resume")),
            length=sum(waiting[0::2]),
            pending=sum(row["pending"] for row in waiting[1::2]),
            queued=sum(queue.count for queue in self._queues),
            redis=memory["used_memory"],
            workers=self._resident(),
        )

    def _resident(self) -> dict[str, int]:
        state = load_state(self._settings.data_dir)
        assert state is not None
        return {
            child.name: psutil.Process(child.process.pid).memory_info().rss
            for child in state.children
            if child.process and child.name.startswith("worker-")
        }

    def _watch(self) -> None:
        try:
            while not self._done.wait(self._seconds):
                self.samples.append(self.look())
        except BaseException as error:  # noqa: BLE001  # the thread's, raised where the test sees it
            self._error = error


def quarters(samples: Sequence[Sample], turns: int) -> list[list[Sample]]:
    """The samples by quarter of `turns` stored."""
    found: list[list[Sample]] = [[] for _ in range(QUARTERS)]
    first = samples[0].stored
    for sample in samples:
        found[min(QUARTERS - 1, (sample.stored - first) * QUARTERS // turns)].append(sample)
    return found


def table(parts: Sequence[Sequence[Sample]]) -> str:
    """Peaks by quarter, memory in MiB."""
    names = sorted(parts[0][0].workers)
    rows = [("quarter", "samples", *names, "pending", "queued", "stream", "redis")]
    for number, part in enumerate(parts, 1):
        peaks = [max(sample.workers[name] for sample in part) / MEBIBYTE for name in names]
        counts = [max(getattr(one, name) for one in part) for name in ("pending", "queued", "length")]
        redis = max(one.redis for one in part) / MEBIBYTE
        rows.append(
            (f"{number}", f"{len(part)}", *(f"{peak:.1f}" for peak in peaks), *map(str, counts), f"{redis:.1f}")
        )
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    return "\n".join("  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
