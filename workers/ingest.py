"""Ingest: one batch of events becomes turns, chunks and vectors. The order of the steps is the promise.

    decode → fold → judge → chunk → embed → catalog (pending) → vectors → catalog (indexed)

Turns are written to every space that there is. Each step can be repeated: every id is derived from content.
Acknowledging is the caller's, after all of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from producers.crash_points import Point, reached
from producers.errors import ScopeRecallError
from producers.events import TurnEvent
from workers.embedding.batch import PART_SECONDS, NotEmbedded
from workers.embedding.port import Embedder
from workers.encoders import Encoders, Load, no_other
from workers.encoding import Encoded, Encoder
from workers.rows import chunk_spans, vector_rows
from workers.stores.catalog import Catalog
from workers.stores.lance_schema import VectorRow
from workers.stores.space import Space
from workers.stores.turn_writer import WRITTEN, TurnWrite, judge
from workers.stores.vectors import VectorStore
from workers.superseded import remove_superseded


@dataclass(frozen=True)
class Arrival:
    """A decoded event and the stream order that ranks its revisions."""

    event: TurnEvent
    order: str
    accepted: str | None = None
    """The order of the moment when a spool accepted it; None: the stream did, in `order`."""


@dataclass(frozen=True)
class Prepared:
    """An event as each space has it; one that its space's model cannot take now is missing there."""

    arrival: Arrival
    encoded: Mapping[Space, Encoded]


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

    def __init__(
        self, catalog: Catalog, vectors: VectorStore, embedder: Embedder, space: Space, load: Load = no_other
    ) -> None:
        """`space` is the active one, which must be in the catalog; `load` loads the models of others that come."""
        self._catalog = catalog
        self._vectors = vectors
        self._encoders = Encoders(catalog, Encoder(space, embedder), load)

    @property
    def active(self) -> Encoder:
        """The encoder of the space that recall reads, as of the last batch."""
        return self._encoders.active

    def refresh(self) -> None:
        """Load the models of spaces that have come, and let go of those that are gone; `store` does it as well."""
        self._encoders.refresh()

    def store(
        self, arrivals: Sequence[Arrival], pause: Callable[[], None] = lambda: None, pace: float = PART_SECONDS
    ) -> Counter[str]:
        """Store a batch; returns how many events were new, revision, resume, duplicate, stale or forgotten.

        When it returns, recall finds the batch. When it raises, running it again with the same events is safe; so
        `pause` may raise to stop it. It is called about every `pace` seconds while nothing is written. Raises
        `NotStored` naming the events to leave out.
        """
        self.refresh()
        latest, outcomes = fold(arrivals)
        known = self._catalog.known([arrival.event.key for arrival in latest])
        fresh: list[Arrival] = []
        older: list[Arrival] = []
        for arrival in latest:
            outcome = judge(arrival.event.content_hash, arrival.order, known.get(arrival.event.key))
            (fresh if outcome in WRITTEN else older).append(arrival)
        prepared = self._prepare(fresh, pause, pace)
        # Duplicates and stale revisions go along without chunks: the catalog judges them again and keeps their order.
        writes = [_write(one) for one in prepared]
        writes += [TurnWrite(arrival.event, arrival.order, (), arrival.accepted) for arrival in older]
        with self._catalog.locks.publishing():  # between the two stores nobody may forget
            judged = self._catalog.write(self._encoders.spaces, writes)
            reached(Point.AFTER_CATALOG_COMMIT)
            self._publish(prepared, judged)
            # An earlier delivery of a stale revision may have left rows behind when it was cut short.
            self._remove_superseded([w.event.key for w, one in zip(writes, judged, strict=True) if one == "stale"])
        outcomes.update(judged)
        return outcomes

    def _prepare(self, fresh: Sequence[Arrival], pause: Callable[[], None], pace: float) -> list[Prepared]:
        """Chunk and embed for every space. Raises `NotStored` for what the active one's model refuses."""
        by_space: dict[Space, Sequence[Encoded | None]] = {}
        for encoder in (self.active, *self._encoders.beside):
            chunked = []
            for arrival in fresh:
                pause()  # the longest turns take seconds each
                chunked.append(encoder.chunk(arrival.event.content))
            if encoder is not self.active:
                by_space[encoder.space] = self._encoders.embed_beside(encoder, chunked, pause, pace)
                continue
            reached(Point.AFTER_CHUNKING)
            try:
                by_space[encoder.space] = encoder.embed(chunked, pause, pace)
                continue
            except NotEmbedded as failed:
                errors = {
                    arrival.order: failed.errors[chunk.text]
                    for arrival, chunks in zip(fresh, chunked, strict=True)
                    for chunk in chunks
                    if chunk.text in failed.errors
                }
            raise NotStored(errors)
        return [
            Prepared(arrival, {space: one for space, found in by_space.items() if (one := found[at]) is not None})
            for at, arrival in enumerate(fresh)
        ]

    def _publish(self, prepared: Sequence[Prepared], judged: Sequence[str]) -> None:
        """Bring the vectors of what was written into the vector store, then mark it as indexed."""
        rows: dict[Space, list[VectorRow]] = {}
        written: list[TurnEvent] = []
        revised: list[str] = []
        for item, outcome in zip(prepared, judged, strict=False):
            if outcome not in WRITTEN:
                continue
            event, order = item.arrival.event, item.arrival.order
            written.append(event)
            for space, one in item.encoded.items():
                rows.setdefault(space, []).extend(vector_rows(space, event, order, one.chunks, one.vectors))
            if outcome != "new":
                revised.append(event.key)
        if not written:
            return
        for space, some in rows.items():
            self._vectors.upsert(space, some)
        reached(Point.AFTER_LANCE_UPSERT)
        # The rows of the content before go only now: until here the old ones were the only ones to be found.
        self._remove_superseded(revised)
        overtaken = self._catalog.mark_indexed([(event.key, event.content_hash) for event in written])
        reached(Point.AFTER_INDEXED)
        # A newer revision was written while this one was on its way: its rows stay, ours go.
        self._remove_superseded(list(overtaken))

    def _remove_superseded(self, turn_keys: Sequence[str]) -> None:
        remove_superseded(self._catalog, self._vectors, self._encoders.spaces, turn_keys)


def _write(item: Prepared) -> TurnWrite:
    event = item.arrival.event
    spans = [span for space, one in item.encoded.items() for span in chunk_spans(space, event, one.chunks)]
    return TurnWrite(event, item.arrival.order, tuple(spans), item.arrival.accepted)


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
