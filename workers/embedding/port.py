"""The embedder port: what the pipeline and recall ask of an embedding model. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from producers.errors import ScopeRecallError

Vectors = NDArray[np.float32]
"""Shape (n, dimension), float32, each row of L2 norm 1."""


class PartlyEmbedded(Exception):
    """Some texts of a call have no vector, and others do. For whoever embeds a batch; it never reaches a person."""

    def __init__(
        self, vectors: Vectors, errors: Mapping[int, ScopeRecallError], stopped: ScopeRecallError | None = None
    ) -> None:
        super().__init__()
        self.vectors = vectors
        """Shape (n, dimension); NaN where a text has none."""
        self.errors = errors
        """By position, what is wrong with a text while others work."""
        self.stopped = stopped
        """What kept the rest from being tried; it is not about any text."""


class Embedder(Protocol):
    """An embedding model, loaded and resident.

    Implementations raise `EmbedderUnavailable` for what may pass and `ModelError` for what will not, and where some of
    a call's vectors are known all the same, `PartlyEmbedded`, so that no work is done twice.
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
