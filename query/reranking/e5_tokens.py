"""Token vectors of multilingual-e5-small, moved by the mean of ordinary text and normalised again. Runs torch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from producers.settings import Settings
from query.reranking.token_encoder import Prepared
from workers.embedding.e5_model import centre, shared_e5


class E5Tokens:
    """The packaged model, which the process may also embed with."""

    scripts: frozenset[str] | None = None

    def __init__(self, settings: Settings) -> None:
        """Raises `ModelError` when the package is absent, or its weights are not in the form that is understood."""
        self._model = shared_e5(settings)
        self._centre = centre("tokens")

    def prepare(self, texts: Sequence[str], *, query: bool) -> list[Prepared]:
        prepared = []
        for text in texts:
            ids = self._model.prepare(text, query=query)
            own = np.ones(len(ids), np.bool_)
            own[: self._model.prefix_tokens + 1] = own[-1] = False
            prepared.append(Prepared(ids, own))
        return prepared

    def forward(self, rows: Sequence[NDArray[np.int32]]) -> list[NDArray[np.float16]]:
        return [_unit(_unit(vectors) - self._centre).astype(np.float16) for vectors in self._model.hidden(rows)]

    def is_word(self, token: int) -> bool:
        vocabulary = self._model.vocabulary
        return token != vocabulary.unknown and any(map(str.isalnum, vocabulary.pieces[token]))


def _unit(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.asarray(vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-6), np.float32)
