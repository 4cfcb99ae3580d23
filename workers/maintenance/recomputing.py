"""Vectors computed again for chunks that the catalog has: the missing ones, and a sample to compare. Does I/O.

A model is loaded only when the first text is to be embedded. A revision or a forget that comes in between wins: what is
written is judged again while the catalog cannot change.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from producers.settings import Settings
from workers.chunking import Chunk, Kind
from workers.embedding.batch import NotEmbedded, VectorCache, embed_unique
from workers.embedding.port import Embedder, Vectors
from workers.encoding import load_model
from workers.rows import vector_rows
from workers.stores.catalog import Catalog
from workers.stores.lance_schema import VectorRow
from workers.stores.spaces import StoredSpace
from workers.stores.stored_turns import StoredTurn
from workers.stores.turn_writer import ChunkSpan
from workers.stores.vectors import VectorStore

BATCH = 512
"""Chunks embedded and written at once; about 5 s with a model of MiniLM's size on a CPU."""
SAME = 0.99
"""Least cosine of a stored vector to the fresh one; another precision stays above .995, another model far below."""


class Compared(NamedTuple):
    """How a sample of stored vectors agrees with fresh ones."""

    vectors: int
    differing: int
    lowest: float
    """Cosine."""


@dataclass
class Recomputing:
    """One space's chunks on their way back into its table."""

    catalog: Catalog
    vectors: VectorStore
    stored: StoredSpace
    settings: Settings
    refused: int = 0
    """Chunks that the model gives no vector for."""
    _embedder: Embedder | None = None
    _cache: VectorCache = field(default_factory=VectorCache)

    @property
    def loaded(self) -> bool:
        """Whether the model is in memory already."""
        return self._embedder is not None

    def write(self, vector_ids: Sequence[str]) -> int:
        """Embed these chunks and write their rows; returns how many. Chunks that are gone by now are left out.

        Raises `ModelError` and `EmbedderUnavailable` when the model cannot be used, `StoreUnavailable`.
        """
        rows = self._rows(vector_ids)
        space = self.stored.space
        ids = [row.vector_id for row in rows]
        with self.catalog.locks.publishing(), self.catalog.chunk_rows.unchanging(space, ids) as wanted:
            current = [row for row in rows if row.vector_id in wanted]
            self.vectors.upsert(space, current)
        return len(current)

    def compare(self, vector_ids: Sequence[str]) -> Compared:
        """Embed these chunks, and write those again whose stored vector is another. Raises as `write`."""
        fresh = {row.vector_id: row.vector for row in self._rows(vector_ids)}
        there = self.vectors.vectors_of(self.stored.space, list(fresh))
        cosines = {key: _cosine(vector, fresh[key]) for key, vector in there.items()}
        differing = [key for key, cosine in cosines.items() if not cosine >= SAME]
        self.write(differing)
        return Compared(len(cosines), len(differing), min(cosines.values(), default=1.0))

    def _rows(self, vector_ids: Sequence[str]) -> list[VectorRow]:
        spans = self.catalog.chunk_rows.spans(vector_ids)
        of_turn: dict[str, list[ChunkSpan]] = {}
        for turn_key, span in spans.values():
            of_turn.setdefault(turn_key, []).append(span)
        turns = self.catalog.stored_turns(list(of_turn))
        pieces = [
            (turns[key], _chunk(turns[key], span)) for key, found in of_turn.items() if key in turns for span in found
        ]
        embedded = self._embed([chunk.text for _, chunk in pieces])
        space = self.stored.space
        rows = []
        for turn, chunk in pieces:
            if chunk.text in embedded:
                rows += vector_rows(space, turn.event, turn.entry_order, [chunk], embedded[chunk.text][np.newaxis])
        # A turn that was revised since its spans were read has other ids: those are in no span that was asked for.
        return [row for row in rows if row.vector_id in spans]

    def _embed(self, texts: Sequence[str]) -> dict[str, Vectors]:
        """Shape (dimension,) by text; a text that the model refuses is left out."""
        if not texts:
            return {}
        embedder = self._load()
        try:
            vectors = embed_unique(embedder, texts, cache=self._cache)
        except NotEmbedded as failed:
            self.refused += sum(text in failed.errors for text in texts)
            texts = [text for text in texts if text not in failed.errors]
            vectors = embed_unique(embedder, texts, cache=self._cache)
        return dict(zip(texts, vectors, strict=True))

    def _load(self) -> Embedder:
        if self._embedder is None:
            self._embedder = load_model(self.stored, self.settings)
        return self._embedder


def _chunk(turn: StoredTurn, span: ChunkSpan) -> Chunk:
    text = turn.event.content[span.start : span.end].strip()  # a span also holds the white space around its text
    kind: Kind = "code" if span.kind == "code" else "prose"
    return Chunk(span.index, span.total, span.start, span.end, text, kind, span.language)


def _cosine(one: Vectors, other: Vectors) -> float:
    """Of vectors of norm 1."""
    return float(one @ other)
