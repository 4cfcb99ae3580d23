"""Embeds the texts of an ingest batch: equal texts once, recent texts not at all, every vector checked. No I/O itself.

Texts go to the embedder longest first, across the whole batch, so that those the model reads together are alike in
length and little of its work is padding.
"""

from __future__ import annotations

import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from producers.crash_points import Point, reached
from producers.errors import ModelError, PoisonError, ScopeRecallError
from workers.embedding.port import Embedder, PartlyEmbedded, Vectors

DEFAULT_CACHE_VECTORS = 8192
"""About 25 MB of 768-dimensional vectors: the texts of the last tens of batches."""
PART_SECONDS = 2.0
"""How long one call of the embedder should take at most, and so how soon a worker can stop; its grace is 20 s."""
MIN_NORM = 1e-6
"""A vector shorter than this has no direction that means anything."""
PROBE = "dimension"
"""A text that any working embedder embeds: what fails on it as well is not the fault of a turn."""
NATIVE_FAILURES = (RuntimeError, MemoryError)
"""What torch and other native encoders raise, for a text or for good."""


class NotEmbedded(Exception):
    """Some texts cannot be embedded, by an embedder that works. The vectors of the others are in the cache."""

    def __init__(self, errors: Mapping[str, ScopeRecallError]) -> None:
        super().__init__()
        self.errors = errors
        """By text."""


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
    """Cuts texts into parts that the embedder reads in a given time, from how long it has just taken."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._bytes_per_second = 0.0

    def parts(
        self, texts: Sequence[str], pause: Callable[[], None], seconds: float = PART_SECONDS
    ) -> Iterator[Sequence[str]]:
        """The texts in order, in parts of about `seconds`.

        Calls `pause` before each part, and times the taker of one until it asks for the next.
        """
        at = 0
        while at < len(texts):
            size = len(texts[at].encode("utf-8", "replace"))
            end = at + 1  # one text says how fast it is when nothing is known yet
            while end < len(texts) and size < self._bytes_per_second * seconds:
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

    `parts` cuts what the embedder reads in one call; what it raises ends the work between two calls.
    Raises `NotEmbedded` for texts without a usable vector, `ModelError` when the embedder gives none for any text, and
    what the embedder raises. What was computed before stays in the cache, so that trying again goes on from there.
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
    errors: dict[str, ScopeRecallError] = {}
    for part in parts(missing) if missing else ():
        errors |= _embed_part(embedder, part, rows, cache)
    if errors:
        raise NotEmbedded(errors)
    if not texts:
        return np.empty((0, embedder.dimension), np.float32)
    return np.stack([rows[text] for text in texts])


def _embed_part(
    embedder: Embedder, texts: Sequence[str], rows: dict[str, Vectors], cache: VectorCache | None
) -> dict[str, ScopeRecallError]:
    """Put the vectors of these distinct texts into `rows` and `cache`; returns what is wrong with the others."""
    outcome = _embed(embedder, texts)
    reached(Point.MID_EMBEDDING)
    fresh, usable = checked(embedder, outcome.vectors, len(texts))
    # Asked before anything is kept: of an embedder that is broken no vector is believed.
    errors = {} if outcome.stopped else _blamed(embedder, texts, np.flatnonzero(~usable).tolist(), outcome.errors)
    for text, vector, good in zip(texts, fresh, usable, strict=True):
        if good:
            rows[text] = vector
            if cache is not None:
                cache.put(embedder, text, vector)
    if outcome.stopped is not None:
        raise outcome.stopped
    return errors


def checked(embedder: Embedder, vectors: Vectors, count: int) -> tuple[Vectors, NDArray[np.bool_]]:
    """`vectors` with rows of norm 1, and which of them can be used. Raises `ModelError` when the shape is wrong."""
    expected = (count, embedder.dimension)
    if vectors.shape != expected:
        raise ModelError(f"embedder {embedder.name}: gave vectors of shape {vectors.shape} where {expected} was due")
    norms = np.linalg.norm(vectors.astype(np.float64), axis=1, keepdims=True)
    usable = np.isfinite(norms[:, 0]) & (norms[:, 0] > MIN_NORM)
    unit: Vectors = (vectors / np.where(usable[:, None], norms, 1.0)).astype(np.float32)
    return unit, usable


def _embed(embedder: Embedder, texts: Sequence[str]) -> PartlyEmbedded:
    try:
        return PartlyEmbedded(embedder.embed_passages(texts), {})
    except PartlyEmbedded as partly:
        return partly
    except NATIVE_FAILURES as error:
        if _works(embedder):
            raise  # whoever called finds the text that it fails on
        raise ModelError(
            f"embedder {embedder.name}: fails on every text ({type(error).__name__}); what is accepted is safe and "
            "waits: restart the worker, and see its log if that does not help"
        ) from error


def _blamed(
    embedder: Embedder, texts: Sequence[str], unusable: Sequence[int], known: Mapping[int, ScopeRecallError]
) -> dict[str, ScopeRecallError]:
    """What is wrong with each text at these positions. Raises `ModelError` when it is the embedder."""
    if not known.keys() >= set(unusable) and not _works(embedder):
        raise ModelError(
            f"embedder {embedder.name}: {len(unusable)} of {len(texts)} vectors are zero or not finite, and so is that "
            "of a plain word: nothing of this batch is stored; try precision=float32, or another embedder"
        )
    advice = "try precision=float32, or another embedder"
    return {
        texts[at]: known.get(at)
        or PoisonError(
            f"embedder {embedder.name}: the vector of a text of {len(texts[at]):,} characters is zero or not finite; "
            + advice
        )
        for at in unusable
    }


def _works(embedder: Embedder) -> bool:
    """Whether the embedder still embeds a text that it must be able to embed."""
    try:
        _, usable = checked(embedder, embedder.embed_passages([PROBE]), 1)
    except (PartlyEmbedded, *NATIVE_FAILURES):
        return False
    return bool(usable.all())


def _key(embedder: Embedder, text: str) -> bytes:
    return hashlib.sha256(f"{embedder.name}\0{text}".encode("utf-8", "surrogatepass")).digest()
