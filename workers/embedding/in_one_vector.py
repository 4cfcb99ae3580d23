"""Two embedders in one vector, so that one space, one table and one search hold both. No I/O of its own.

    vector(t) = [a · first(t), b · unit(second(t) - centre)],   a² + b² = 1

so the dot product of two vectors is a weighted mean of two cosines. Of a text in a script that the first does not speak
its part is 0 and the second fills the vector: between two such texts the second's cosine alone decides.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from producers.scripts import foreign_scripts
from workers.embedding.port import Embedder, Vectors

MIN_NORM = 1e-6
"""What is shorter has no direction; nothing that `second` makes of a text is this near to its centre."""


class InOneVector:
    """`first` for the scripts it speaks, and `second`, which speaks all, for everything."""

    scripts: frozenset[str] | None = None

    def __init__(self, first: Embedder, second: Embedder, *, centre: Vectors, second_share: float) -> None:
        """`centre`: the mean vector of ordinary text by `second`; `second_share`: b²."""
        self.name = f"{first.name}+{second.name}"
        self.dimension = first.dimension + second.dimension
        self.max_tokens = first.max_tokens
        self._first, self._second = first, second
        self._centre = centre
        self._a, self._b = math.sqrt(1 - second_share), math.sqrt(second_share)

    def token_counter(self) -> Callable[[str], int]:
        """What fills the first's `max_tokens` or, in proportion, the second's, whichever is fuller."""
        first, second = self._first.token_counter(), self._second.token_counter()
        share = self._first.max_tokens / self._second.max_tokens

        def count(text: str) -> int:
            of_second = math.ceil(second(text) * share)
            return of_second if self._foreign(text) else max(first(text), of_second)

        return count

    def embed_passages(self, texts: Sequence[str]) -> Vectors:
        """One row a text, in order."""
        spoken = [place for place, text in enumerate(texts) if not self._foreign(text)]
        vectors = np.zeros((len(texts), self.dimension), np.float32)
        vectors[:, self._first.dimension :] = self._centred(self._second.embed_passages(texts))
        if spoken:
            vectors[spoken, : self._first.dimension] = self._a * self._first.embed_passages(
                [texts[at] for at in spoken]
            )
            vectors[spoken, self._first.dimension :] *= self._b
        return vectors

    def embed_query(self, text: str) -> Vectors:
        """Shape (1, dimension)."""
        second = self._centred(self._second.embed_query(text))
        if self._foreign(text):
            return np.concatenate([np.zeros((1, self._first.dimension), np.float32), second], axis=1)
        return np.concatenate([self._a * self._first.embed_query(text), self._b * second], axis=1)

    def _foreign(self, text: str) -> bool:
        return bool(foreign_scripts(text, self._first.scripts))

    def _centred(self, vectors: Vectors) -> Vectors:
        moved = vectors - self._centre
        unit: Vectors = moved / np.maximum(np.linalg.norm(moved, axis=1, keepdims=True), MIN_NORM)
        return unit
