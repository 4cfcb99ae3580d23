"""Ingest: one batch of events becomes turns, chunks and vectors. The order of the steps is the promise.

    decode → fold → judge → chunk → embed → catalog (pending) → vectors → catalog (indexed)

Each step can be repeated: every id is derived from content. Acknowledging is the caller's, after all of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from producers.crash_points import Point, reached
from producers.errors import ScopeRecallError
from producers.events import TurnEvent
from workers.chunking import Chunk, Chunker
from workers.embedding.batch import PART_SECONDS, NotEmbedded, Pace, VectorCache, embed_unique
from workers.embedding.port import Embedder
from workers.rows import chunk_spans, vector_rows
from workers.stores.catalog import Catalog
from workers.stores.lance_schema import VectorRow
from workers.stores.space import Space
from workers.stores.turn_writer import WRITTEN, TurnWrite, judge
from workers.stores.vectors import VectorStore


@dataclass(frozen=True)
class Arrival:
    """A decoded event and the stream order that ranks its revisions."""

    event: TurnEvent
    order: str
    accepted: str | None = None
    """The order of the moment when a spool accepted it; None: the stream did, in `order`."""


@dataclass(frozen=True)
class Prepared:
    """An event with its chunks, before it is embedded."""

    arrival: Arrival
    chunks: list[Chunk]


class NotStored(Exception):
    """Some events of a batch cannot be embedded, and nothing of the batch is stored; the others can be.

    For whoever runs the batch; it never reaches a person.
    """

    def __init__(self, errors: Mapping[str, ScopeRecallError]) -> None:
        super().__init__()
        self.errors = errors
        """By `Arrival.order`."""


class Pipeline:
    """The resident parts of one ingest worker."""

    def __init__(self, catalog: Catalog, vectors: VectorStore, embedder: Embedder, space: Space) -> None:
        self._catalog = catalog
        self._vectors = vectors
        self._embedder = embedder
        self._space = space
        self._chunker = Chunker(embedder.token_counter(), space.chunk_tokens, space.chunk_overlap)
        self._cache = VectorCache()
        self._pace = Pace()

    def store(
        self, arrivals: Sequence[Arrival], pause: Callable[[], None] = lambda: None, pace: float = PART_SECONDS
    ) -> Counter[str]:
        """Store a batch; returns how many events were new, revision, resume, duplicate, stale or forgotten.

        When it returns, recall finds the batch. When it raises, running it again with the same events is safe; so
        `pause` may raise to stop it. It is called about every `pace` seconds while nothing is written. Raises
        `NotStored` naming the events to leave out.
        """
        latest, outcomes = fold(arrivals)
        known = self._catalog.known([arrival.event.key for arrival in latest])
        fresh: list[Arrival] = []
        older: list[Arrival] = []
        for arrival in latest:
            outcome = judge(arrival.event.content_hash, arrival.order, known.get(arrival.event.key))
            (fresh if outcome in WRITTEN else older).append(arrival)
        prepared = []
        for arrival in fresh:
            pause()  # the longest turns take seconds each
            prepared.append(Prepared(arrival, self._chunker.chunk(arrival.event.content)))
        reached(Point.AFTER_CHUNKING)
        embedded = self._embed(prepared, pause, pace)
        # Duplicates and stale revisions go along without chunks: the catalog judges them again and keeps their order.
        writes = [
            TurnWrite(arrival.event, arrival.order, chunk_spans(self._space, arrival.event, chunks), arrival.accepted)
            for arrival, chunks in ((item.arrival, item.chunks) for item in prepared)
        ]
        writes += [TurnWrite(arrival.event, arrival.order, (), arrival.accepted) for arrival in older]
        with self._catalog.locks.publishing():  # between the two stores nobody may forget
            judged = self._catalog.write(self._space, writes)
            reached(Point.AFTER_CATALOG_COMMIT)
            self._publish(prepared, judged, embedded)
            # An earlier delivery of a stale revision may have left rows behind when it was cut short.
            self._remove_superseded([w.event.key for w, one in zip(writes, judged, strict=True) if one == "stale"])
        outcomes.update(judged)
        return outcomes

    def _embed(self, prepared: Sequence[Prepared], pause: Callable[[], None], pace: float) -> np.ndarray:
        """Shape (chunks of all, dimension)."""
        texts = [chunk.text for item in prepared for chunk in item.chunks]
        try:
            return embed_unique(
                self._embedder, texts, cache=self._cache, parts=lambda missing: self._pace.parts(missing, pause, pace)
            )
        except NotEmbedded as failed:
            errors = {
                item.arrival.order: failed.errors[chunk.text]
                for item in prepared
                for chunk in item.chunks
                if chunk.text in failed.errors
            }
        raise NotStored(errors)

    def _publish(self, prepared: Sequence[Prepared], judged: Sequence[str], embedded: np.ndarray) -> None:
        """Bring the vectors of what was written into the vector store, then mark it as indexed."""
        rows: list[VectorRow] = []
        written: list[TurnEvent] = []
        revised: list[str] = []
        position = 0
        for item, outcome in zip(prepared, judged, strict=False):
            vectors = embedded[position : position + len(item.chunks)]
            position += len(item.chunks)
            if outcome not in WRITTEN:
                continue
            written.append(item.arrival.event)
            rows += vector_rows(self._space, item.arrival.event, item.arrival.order, item.chunks, vectors)
            if outcome != "new":
                revised.append(item.arrival.event.key)
        if not written:
            return
        self._vectors.upsert(self._space, rows)
        reached(Point.AFTER_LANCE_UPSERT)
        # The rows of the content before go only now: until here the old ones were the only ones to be found.
        self._remove_superseded(revised)
        overtaken = self._catalog.mark_indexed([(event.key, event.content_hash) for event in written])
        reached(Point.AFTER_INDEXED)
        # A newer revision was written while this one was on its way: its rows stay, ours go.
        self._remove_superseded(list(overtaken))

    def _remove_superseded(self, turn_keys: Sequence[str]) -> None:
        """Delete the rows of these turns that are not of their current content.

        Another worker may be at a newer revision, so what is current must stay so until the others are deleted.
        """
        if turn_keys:
            with self._catalog.unchanging(turn_keys) as current:
                self._vectors.delete_superseded(self._space, list(current.items()))


def fold(arrivals: Sequence[Arrival]) -> tuple[list[Arrival], Counter[str]]:
    """One arrival an identity, the latest; what it replaces is counted as duplicate or stale. Pure."""
    latest: dict[str, Arrival] = {}
    outcomes: Counter[str] = Counter()
    for arrival in sorted(arrivals, key=lambda one: one.order):
        before = latest.get(arrival.event.key)
        if before is not None:
            same = before.event.content_hash == arrival.event.content_hash
            outcomes["duplicate" if same else "stale"] += 1
        latest[arrival.event.key] = arrival
    return list(latest.values()), outcomes
