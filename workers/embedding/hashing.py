"""An embedder without a model: a hashed bag of words. Pure numpy.

For tests and for measuring everything around the encoder; it finds shared words, not shared meaning.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from zlib import crc32

import numpy as np

from workers.embedding.port import Vectors

DIMENSION = 64
MAX_DIMENSION = 4096
MAX_TOKENS = 256
CHARS_PER_TOKEN = 4
"""The usual ratio of English; it makes counting free."""
_IDEOGRAPHS = "\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"
_FEATURE = re.compile(rf"[{_IDEOGRAPHS}]+|[^\W{_IDEOGRAPHS}]+")
_SIGN_BIT = 1 << 31


class HashingEmbedder:
    """Words, and character bigrams where a script has no spaces, hashed with a sign onto `dimension` places.

    Feature hashing after Weinberger et al. 2009, arXiv:0902.2206.
    """

    name = "hashing-v1"
    dimension = DIMENSION
    max_tokens = MAX_TOKENS
    scripts: frozenset[str] | None = None

    def __init__(self, dimension: int = DIMENSION) -> None:
        if dimension != DIMENSION:
            self.dimension = dimension
            self.name = f"{self.name}-{dimension}"

    def token_counter(self) -> Callable[[str], int]:
        return lambda text: -(-len(text) // CHARS_PER_TOKEN)

    def embed_passages(self, texts: Sequence[str]) -> Vectors:
        """One row a text, in order."""
        hashes = [(row, feature) for row, text in enumerate(texts) for feature in _hashes(text)]
        rows, features = np.array(hashes, dtype=np.int64).reshape(-1, 2).T
        signs = np.where(features & _SIGN_BIT, -1.0, 1.0)
        size = self.dimension
        places = rows * size + features % size
        sums = np.bincount(places, signs, minlength=len(texts) * size).reshape(len(texts), size)
        for row in np.flatnonzero(~sums.any(axis=1)).tolist():
            sums[row, _crc(texts[row]) % size] = 1.0  # no words, or two that cancel out
        vectors: Vectors = (sums / np.linalg.norm(sums, axis=1, keepdims=True)).astype(np.float32)
        return vectors

    def embed_query(self, text: str) -> Vectors:
        """Shape (1, dimension)."""
        return self.embed_passages([text])


def _hashes(text: str) -> Iterator[int]:
    for word in _FEATURE.findall(text.lower()):
        if word[0] < "\u3040":
            yield _crc(word)
        else:
            yield from (_crc(word[at : at + 2]) for at in range(max(1, len(word) - 1)))


def _crc(text: str) -> int:
    return crc32(text.encode("utf-8", "surrogatepass"))
