"""Embeds the texts of an ingest batch: equal texts once, recent texts not at all, every vector checked. No I/O itself.

Texts go to the embedder longest first, across the whole batch, so that those the model reads together are alike in
length and little of its work is padding.
"""

from __future__ import annotations

import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from producers.crash_points import Point, reached
from producers.errors import ModelError
from workers.embedding.port import Embedder, Vectors

DEFAULT_CACHE_VECTORS = 8192
"""About 13 MB of 384-dimensional vectors: the texts of the last tens of batches."""
PART_SECONDS = 2.0
"""How long one call of the embedder should take at most, and so how soon a worker can stop; its grace is 20 s."""
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


class Pace:
    """Cuts texts into parts that the embedder reads in about `PART_SECONDS`, from how long it has just taken."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._bytes_per_second = 0.0

    def parts(self, texts: Sequence[str], pause: Callable[[], None]) -> Iterator[Sequence[str]]:
        """The texts in order. Calls `pause` before each part, and times the taker of one until it asks for the next."""
        at = 0
        while at < len(texts):
            size = len(texts[at].encode("utf-8", "replace"))
            end = at + 1  # one text says how fast it is when nothing is known yet
            while end < len(texts) and size < self._bytes_per_second * PART_SECONDS:
                size += len(texts[end].encode("utf-8", "replace"))
                end += 1
            pause()
            started = self._clock()
            yield texts[at:end]
            self._bytes_per_second = size / (self._clock() - started)
            at = end


def embed_unique(
    embedder: Embedder,
    texts: Sequence[str],
    *,
    cache: VectorCache | None = None,
    parts: Callable[[Sequence[str]], Iterable[Sequence[str]]] = lambda texts: [texts],
) -> Vectors:
    """Shape (len(texts), dimension), in the order of `texts`, each row of norm 1.

    `parts` cuts what the embedder reads in one call; what it raises ends the work between two calls. Raises what the
    embedder raises as well, and `ModelError` for a vector that has the wrong shape, is zero or not finite.
    """
    rows: dict[str, Vectors] = {}
    missing: list[str] = []
    for text in dict.fromkeys(texts):
        known = cache.get(embedder, text) if cache is not None else None
        if known is None:
            missing.append(text)
        else:
            rows[text] = known
    # Bytes of UTF-8 follow the number of tokens more closely than characters when scripts are mixed.
    missing.sort(key=lambda text: len(text.encode("utf-8", "replace")), reverse=True)
    for part in parts(missing) if missing else ():
        computed = embedder.embed_passages(part)
        reached(Point.MID_EMBEDDING)
        fresh = checked(embedder, computed, len(part))
        for text, vector in zip(part, fresh, strict=True):
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
