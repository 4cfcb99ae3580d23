"""Token vectors of texts that were read before, the most recently used, bounded in bytes. No I/O."""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Tokens:
    """One text's tokens, special tokens left out."""

    ids: NDArray[np.int32]
    """Shape (tokens,)."""
    vectors: NDArray[np.float16] | None
    """Shape (tokens, dimension), rows of L2 norm 1; None when they were not made in time. float16 halves the cache and
    moves a score by less than .001."""

    @property
    def nbytes(self) -> int:
        return self.ids.nbytes + (0 if self.vectors is None else self.vectors.nbytes)


def cache_key(text: str, *, query: bool) -> bytes:
    """A digest: the cache holds no text, and a text as a query and as a passage are two."""
    return hashlib.sha256((b"q" if query else b"p") + text.encode("utf-8", "surrogatepass")).digest()


class VectorCache:
    """Least recently used token vectors by key of their text, bounded in bytes. Safe for several threads."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._size = 0
        self._entries: OrderedDict[bytes, Tokens] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def nbytes(self) -> int:
        """Bytes held, never above the limit."""
        return self._size

    def get(self, key: bytes) -> Tokens | None:
        with self._lock:
            if key in self._entries:
                self._entries.move_to_end(key)
            return self._entries.get(key)

    def put(self, key: bytes, entry: Tokens) -> None:
        """Keep `entry`; one larger than the whole cache is not kept."""
        with self._lock:
            if key in self._entries or entry.nbytes > self._limit:
                return
            self._entries[key] = entry
            self._size += entry.nbytes
            while self._size > self._limit:
                self._size -= self._entries.popitem(last=False)[1].nbytes
