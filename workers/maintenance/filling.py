"""Brings turns into a space that lacks them, from the catalog. Does I/O on both stores.

Vectors first, then the catalog's chunks, under the lock of those who publish: a kill in between leaves vectors that
nobody returns and the next run writes again. What is lacking is what the catalog says: no place is remembered.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from workers.encoding import Encoded, Encoder
from workers.rows import chunk_spans, vector_rows
from workers.stores.catalog import Catalog
from workers.stores.space_filling import SpaceFill
from workers.stores.stored_turns import StoredTurn
from workers.stores.vectors import VectorStore
from workers.superseded import remove_superseded

FIRST_TURNS = 32
MOST_TURNS = 1024
"""Turns at once: as many as take about `BATCH_SECONDS`, since each batch adds a fragment to the table."""
MOST_CHARS = 4_000_000
"""Characters at once, so that memory is bounded whatever turns hold."""
BATCH_SECONDS = 4.0
PROGRESS_SECONDS = 5.0
"""Between two notes of the speed in the catalog."""


class Stopped(Exception):
    """The time is up, or the process is to end: the batch at hand is left out."""


@dataclass
class Filled:
    """What one call came to."""

    turns: int = 0
    refused: int = 0
    """Turns that the model refuses."""
    reason: str | None = None
    """Why it refuses the last of them."""
    complete: bool = False
    """Whether every turn was looked at."""


class Filling:
    """Fills one space."""

    def __init__(
        self,
        catalog: Catalog,
        vectors: VectorStore,
        encoder: Encoder,
        *,
        rate: float = 0.0,
        on_progress: Callable[[int], None] = lambda _: None,
    ) -> None:
        """`rate`: most turns a second, 0 without a limit. `on_progress` gets the turns of each batch."""
        self._catalog = catalog
        self._vectors = vectors
        self._encoder = encoder
        self._space = encoder.space
        self._rate = rate
        self._on_progress = on_progress
        self._size = FIRST_TURNS

    def run(self, go_on: Callable[[], bool]) -> Filled:
        """Go once through the turns that the space lacks, in the order of their keys, as long as `go_on` says so.

        Raises what the model raises when it cannot be used, `StoreUnavailable` when a store cannot.
        """
        found = Filled()
        after = ""
        started = noted = time.monotonic()
        while go_on() and self._wanted():
            keys = self._next(after)
            if not keys:
                found.complete = True
                break
            began = time.monotonic()
            try:
                stored = self._fill(keys, go_on, found)
            except Stopped:
                break
            after = keys[-1]
            found.turns += stored
            self._on_progress(stored)
            self._adapt(len(keys), time.monotonic() - began)
            self._hold(found.turns, started, go_on)
            if time.monotonic() - noted > PROGRESS_SECONDS:
                noted = time.monotonic()
                self._catalog.spaces.note(self._space, speed=round(found.turns / (noted - started), 1))
        if found.turns:
            self._catalog.spaces.note(self._space, speed=round(found.turns / (time.monotonic() - started), 1))
        return found

    def _next(self, after: str) -> list[str]:
        keys: list[str] = []
        chars = 0
        for key, length in self._catalog.filling.lacking(self._space, after, self._size):
            chars += length
            if keys and chars > MOST_CHARS:
                break
            keys.append(key)
        return keys

    def _fill(self, keys: Sequence[str], go_on: Callable[[], bool], found: Filled) -> int:
        """Embed these turns and store them; returns how many are in the space now."""

        def pause() -> None:
            if not go_on():
                raise Stopped

        turns = list(self._catalog.stored_turns(keys).values())
        chunked = []
        for one in turns:
            pause()
            chunked.append(self._encoder.chunk(one.event.content))
        encoded, why = self._encoder.embed_what_can_be(chunked, pause)
        if why is not None:
            found.refused += encoded.count(None)
            found.reason = str(why)
        ready = [(turn, one) for turn, one in zip(turns, encoded, strict=True) if one is not None]
        with self._catalog.locks.publishing():  # a forget waits until this batch is whole, or sees nothing of it
            if not self._wanted():  # its table is dropped, or will be, and must not come back
                raise Stopped
            return self._publish(ready)

    def _wanted(self) -> bool:
        return any(one.space == self._space for one in self._catalog.spaces.written())

    def _publish(self, ready: Sequence[tuple[StoredTurn, Encoded]]) -> int:
        known = self._catalog.known([turn.event.key for turn, _ in ready])
        fills = []
        rows = []
        for turn, one in ready:
            event = turn.event
            now = known.get(event.key)
            if now is None or now.content_hash != event.content_hash:
                continue  # revised or forgotten while it was embedded
            rows += vector_rows(self._space, event, now.entry_order, one.chunks, one.vectors)
            spans = chunk_spans(self._space, event, one.chunks)
            fills.append(SpaceFill(event.key, event.content_hash, spans))
        self._vectors.upsert(self._space, rows)
        there = self._catalog.filling.fill(self._space, fills)
        remove_superseded(
            self._catalog, self._vectors, [self._space], [one.turn_key for one in fills if one.turn_key not in there]
        )
        return len(there)

    def _adapt(self, turns: int, seconds: float) -> None:
        if turns < self._size // 2:  # the last ones, or long ones
            return
        fitting = int(turns * BATCH_SECONDS / max(seconds, 0.001))
        self._size = max(FIRST_TURNS, min(MOST_TURNS, fitting, self._size * 2))

    def _hold(self, turns: int, started: float, go_on: Callable[[], bool]) -> None:
        """Wait until no more than `rate` turns a second have been taken."""
        while self._rate and go_on():
            ahead = turns / self._rate - (time.monotonic() - started)
            if ahead <= 0:
                return
            time.sleep(min(ahead, 0.2))
