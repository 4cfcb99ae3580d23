"""Embeds the texts of an ingest batch: equal texts once, recent texts not at all, every vector checked. No I/O itself.

Texts go to the embedder longest first, across the whole batch, so that those the model reads together are alike in
length and little of its work is padding.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Sequence

import numpy as np

from producers.crash_points import Point, reached
from producers.errors import ModelError
from workers.embedding.port import Embedder, Vectors

DEFAULT_CACHE_VECTORS = 8192
"""About 13 MB of 384-dimensional vectors: the texts of the last tens of batches."""
MIN_NORM = 1e-6
"""A vector shorter than this has no direction that means anything."""


class VectorCache:
    """The most recently used vectors, by embedder and text. For one thread."""

    def __init__(self, capacity: int = DEFAULT_CACHE_VECTORS) -> None:
        self.capacity = capacity
        self._vectors: OrderedDict[bytes, Vectors] = OrderedDict()

    def __len__(self) -> int:
        return len(self._vectors)

    def get(self, embedder: Embedder, text: str) -> Vectors | None:
        """Shape (dimension,), or None."""
        key = _key(embedder, text)
        if key not in self._vectors:
            return None
        self._vectors.move_to_end(key)
        return self._vectors[key]

    def put(self, embedder: Embedder, text: str, vector: Vectors) -> None:
        """Keep a copy of `vector`, so that it does not hold on to the whole batch it came in."""
        key = _key(embedder, text)
        self._vectors[key] = vector.copy()
        self._vectors.move_to_end(key)
        if len(self._vectors) > self.capacity:
            self._vectors.popitem(last=False)


def embed_unique(embedder: Embedder, texts: Sequence[str], *, cache: VectorCache | None = None) -> Vectors:
    """Shape (len(texts), dimension), in the order of `texts`, each row of norm 1.

    Raises what the embedder raises, and `ModelError` for a vector that has the wrong shape, is zero or not finite.
    """
    rows: dict[str, Vectors] = {}
    missing: list[str] = []
    for text in dict.fromkeys(texts):
        known = cache.get(embedder, text) if cache is not None else None
        if known is None:
            missing.append(text)
        else:
            rows[text] = known
    if missing:
        # Bytes of UTF-8 follow the number of tokens more closely than characters when scripts are mixed.
        missing.sort(key=lambda text: len(text.encode("utf-8", "replace")), reverse=True)
        computed = embedder.embed_passages(missing)
        reached(Point.MID_EMBEDDING)
        fresh = checked(embedder, computed, len(missing))
        for text, vector in zip(missing, fresh, strict=True):
            rows[text] = vector
            if cache is not None:
                cache.put(embedder, text, vector)
    if not texts:
        return np.empty((0, embedder.dimension), np.float32)
    return np.stack([rows[text] for text in texts])


def checked(embedder: Embedder, vectors: Vectors, count: int) -> Vectors:
    """`vectors` with rows of norm 1. Raises `ModelError` when they are not `count` usable vectors."""
    expected = (count, embedder.dimension)
    if vectors.shape != expected:
        raise ModelError(f"embedder {embedder.name}: gave vectors of shape {vectors.shape} where {expected} was due")
    norms = np.linalg.norm(vectors.astype(np.float64), axis=1, keepdims=True)
    unusable = np.flatnonzero(~(np.isfinite(norms[:, 0]) & (norms[:, 0] > MIN_NORM)))
    if unusable.size:
        raise ModelError(
            f"embedder {embedder.name}: {unusable.size} of {count} vectors are zero or not finite, "
            "so nothing of this batch is stored; try precision=float32, or another embedder"
        )
    unit: Vectors = (vectors / norms).astype(np.float32)
    return unit


def _key(embedder: Embedder, text: str) -> bytes:
    return hashlib.sha256(f"{embedder.name}\0{text}".encode("utf-8", "surrogatepass")).digest()
