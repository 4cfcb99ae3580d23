"""The embedder port: what the pipeline and recall ask of an embedding model. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Vectors = NDArray[np.float32]
"""Shape (n, dimension), float32, each row of L2 norm 1."""


class Embedder(Protocol):
    """An embedding model, loaded and resident.

    Implementations raise `EmbedderUnavailable` for what may pass and `ModelError` for what will not.
    """

    name: str
    """The model's identity, part of the space's: vectors of two names never meet."""
    dimension: int
    max_tokens: int
    """Tokens of one passage's own text that the model reads; special tokens and prefix are already taken off."""
    scripts: frozenset[str] | None
    """Writing systems the model was trained on, by `producers.scripts` name; None means all of them."""

    def token_counter(self) -> Callable[[str], int]:
        """A function text → tokens of the text alone (no special tokens, no prefix), by the model's own tokenizer."""
        ...

    def embed_passages(self, texts: Sequence[str]) -> Vectors:
        """One row a text, in order."""
        ...

    def embed_query(self, text: str) -> Vectors:
        """Shape (1, dimension)."""
        ...
