"""The path from stream to stores driven by hand, in one process: what intake and a worker do, when a test says so."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from threading import Event
from typing import Any

import numpy as np
import pytest

from producers.connection import connect
from producers.events import TurnEvent
from producers.keys import Keys
from producers.settings import Lane, Settings
from producers.stream import EventStream
from workers.intake import Intake
from workers.ledger import Ledger
from workers.queues import rq_queue, use_prefix
from workers.runtime import Runtime, build_ingest, install
from workers.stores.catalog import Catalog
from workers.stores.vectors import VectorStore

SETTLE_SECONDS = 100.0


def turn(content: str, index: int = 0, **fields: Any) -> TurnEvent:
    return TurnEvent(**{"session_id": "s", "role": "user", **fields}, turn_index=index, content=content)


class Stepped:
    """The parts of the path, driven by hand: what intake and a worker do, when the test says so."""

    def __init__(self, settings: Settings, lane: Lane = "live") -> None:
        self.settings = settings
        self.lane = lane
        self.client = connect(settings)
        self.keys = Keys(settings.key_prefix)
        self.stop = Event()
        use_prefix(settings)
        self.pipeline, self._upkeep = build_ingest(settings, self.client)
        self.reinstall()
        self.queue = rq_queue(lane, self.client, settings)
        self.intake = Intake(self.client, settings, lane, "intake", self.stop)
        self.ledger = Ledger(self.client, settings, lane, "worker")
        self.ledger.ensure_group()

    def reinstall(self) -> None:
        """Give the worker `settings` as they are now, or its place back."""
        install(Runtime(self.settings, self.client, "worker", self.stop, self.pipeline, self._upkeep))

    def push(self, *events: TurnEvent) -> None:
        with EventStream(self.settings, self.lane) as stream:
            stream.append(events)

    def step(self) -> None:
        """One round of intake, with its housekeeping."""
        self.intake._next_housekeeping = 0.0
        self.intake.step()

    def work(self) -> int:
        """Run every queued job, as a worker would; returns how many."""
        from rq import SimpleWorker
        from rq.serializers import JSONSerializer

        done = self.queue.count
        worker = SimpleWorker([self.queue], connection=self.client, serializer=JSONSerializer)
        worker.work(burst=True, logging_level="ERROR")
        return done

    def settle(self) -> None:
        """Go on until nothing is left to be done; RQ's alarm takes the place of pytest's time-out meanwhile."""
        deadline = time.monotonic() + SETTLE_SECONDS
        while True:
            assert time.monotonic() < deadline, f"not settled within {SETTLE_SECONDS:.0f} s"
            self.step()
            if not self.work():
                return

    def abandon(self) -> None:
        """Let every lease run out."""
        time.sleep(self.settings.lease + 0.05)

    def counts(self) -> tuple[int, int, int]:
        """(turns, chunks, rows of the vector store); the keys of both stores must be the same and unique."""
        catalog = Catalog.open(self.settings.catalog_location)
        active = catalog.spaces.active()
        assert active is not None
        wanted = list(catalog.vector_ids(active.space))
        stored = sorted(VectorStore(self.settings.vectors_location).keys(active.space))
        assert stored == wanted
        counts = catalog.counts()
        assert counts.pending == 0
        catalog.close()
        return counts.turns, counts.chunks, len(stored)

    def left(self) -> tuple[int, int]:
        """(entries in the stream, pending)."""
        with EventStream(self.settings, self.lane) as stream:
            backlog = stream.backlog()
        return backlog.length, backlog.pending


def failing(stepped: Stepped, monkeypatch: pytest.MonkeyPatch, fail: Callable[[Sequence[str]], None]) -> None:
    """Make the embedder call `fail` with its texts first."""
    embedder = stepped.pipeline.active.embedder
    embed = embedder.embed_passages

    def embed_passages(texts: Sequence[str]) -> np.ndarray:
        fail(texts)
        return embed(texts)

    monkeypatch.setattr(embedder, "embed_passages", embed_passages)
