"""Chunks and vectors of turns for one space, with the model that is its own. Loads models; else no I/O of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from producers.errors import ModelError, ScopeRecallError
from producers.settings import Settings
from workers.chunking import Chunk, Chunker
from workers.embedding.batch import PART_SECONDS, NotEmbedded, Pace, VectorCache, embed_unique
from workers.embedding.port import Embedder
from workers.embedding.registry import load_embedder
from workers.stores.space import Space
from workers.stores.spaces import StoredSpace


@dataclass(frozen=True)
class Encoded:
    """A turn as one space has it."""

    chunks: list[Chunk]
    vectors: np.ndarray
    """Shape (chunks, dimension)."""


def load_model(stored: StoredSpace, settings: Settings) -> Embedder:
    """The model that makes the vectors of `stored`.

    Raises `ModelError` when it cannot be loaded or is another by now, `EmbedderUnavailable` when a service is away.
    """
    embedder = load_embedder(stored.setting, settings)
    space = stored.space
    if (embedder.name, embedder.dimension) != (space.embedder, space.dimension):
        raise ModelError(
            f"the vectors of space {space.id} were made by {space.embedder} ({space.dimension} dimensions); "
            f"{stored.setting!r} now loads {embedder.name} ({embedder.dimension}): put the model back that it was, or "
            "change to this one with `scope-recall reembed --model`"
        )
    return embedder


class Encoder:
    """A loaded model, and how its space cuts turns. For one thread."""

    def __init__(self, space: Space, embedder: Embedder) -> None:
        self.space = space
        self.embedder = embedder
        self._chunker = Chunker(embedder.token_counter(), space.chunk_tokens, space.chunk_overlap)
        self._cache = VectorCache()
        self._pace = Pace()

    def chunk(self, content: str) -> list[Chunk]:
        """The chunks of one turn."""
        return self._chunker.chunk(content)

    def embed(
        self, turns: Sequence[list[Chunk]], pause: Callable[[], None] = lambda: None, pace: float = PART_SECONDS
    ) -> list[Encoded]:
        """One a turn, in order. `pause` may raise to end it; it is called about every `pace` seconds.

        Raises `NotEmbedded` by text, and what the embedder raises; what was computed before is not computed again.
        """
        texts = [chunk.text for chunks in turns for chunk in chunks]
        vectors = embed_unique(
            self.embedder, texts, cache=self._cache, parts=lambda missing: self._pace.parts(missing, pause, pace)
        )
        encoded = []
        position = 0
        for chunks in turns:
            encoded.append(Encoded(chunks, vectors[position : position + len(chunks)]))
            position += len(chunks)
        return encoded

    def embed_what_can_be(
        self, turns: Sequence[list[Chunk]], pause: Callable[[], None] = lambda: None, pace: float = PART_SECONDS
    ) -> tuple[list[Encoded | None], ScopeRecallError | None]:
        """The same with None for a turn that the model refuses, and why it refuses the last of them."""
        try:
            return list(self.embed(turns, pause, pace)), None
        except NotEmbedded as failed:
            errors = failed.errors
        good = [all(chunk.text not in errors for chunk in chunks) for chunks in turns]
        rest = iter(self.embed([chunks for chunks, fine in zip(turns, good, strict=True) if fine], pause, pace))
        return [next(rest) if fine else None for fine in good], list(errors.values())[-1]
