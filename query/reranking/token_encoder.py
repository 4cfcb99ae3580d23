"""What late interaction asks of a model: the tokens of a text and a vector for each. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Prepared:
    """One text as the model reads it."""

    ids: NDArray[np.int32]
    """Shape (tokens,), special tokens and prefix included."""
    own: NDArray[np.bool_]
    """Which of them are the text's own."""


class TokenEncoder(Protocol):
    """A loaded model with its tokenizer. `prepare` and `is_word` may be called by several threads at once, `forward` by
    one at a time."""

    scripts: frozenset[str] | None
    """Writing systems the model was trained on, by `producers.scripts` name; None means all of them."""

    def prepare(self, texts: Sequence[str], *, query: bool) -> list[Prepared]:
        """Cut each text into tokens, up to the model's limit; models that ask for it get the prefix of a query."""
        ...

    def forward(self, rows: Sequence[NDArray[np.int32]]) -> list[NDArray[np.float16]]:
        """One array (tokens, dimension) for each row of token ids, each vector of L2 norm 1. Raises `ModelError`."""
        ...

    def is_word(self, token: int) -> bool:
        """Whether the token holds a letter or digit."""
        ...
