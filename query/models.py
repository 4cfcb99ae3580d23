"""The models of one recaller: loaded at first use, kept, and a failure to load remembered. Does I/O."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from threading import Lock

from producers.errors import EmbedderUnavailable, ModelError
from producers.settings import Settings
from query.reranking.choice import Rerankers
from query.reranking.port import Reranker
from workers.embedding.port import Embedder
from workers.embedding.registry import load_embedder
from workers.runtime import following
from workers.stores.spaces import StoredSpace


class Models:
    """Embedder and rerankers for one space. Safe for several threads."""

    def __init__(self, settings: Settings, active: StoredSpace, beside: Sequence[StoredSpace] = ()) -> None:
        """The embedder is the one that made the space. The setting counts only when it was given, and is not what one
        of the spaces `beside` was made by."""
        self._settings = following(active, settings, beside)
        self.space = active.space
        self._lock = Lock()
        self._embedder: Embedder | ModelError | None = None
        self._rerankers = Rerankers(self._settings)

    def take_rerankers(self, other: Models) -> None:
        """Use the rerankers that `other` has loaded: they read texts, and do not depend on the space."""
        self._rerankers = other._rerankers

    def load(self, question: str) -> None:
        """Load what `question` needs and is not there yet; a model that cannot be loaded says so when asked for."""
        with suppress(ModelError, EmbedderUnavailable):
            self.embedder()
        with suppress(ModelError):
            self.reranker(question)

    def embedder(self) -> Embedder:
        """The space's own embedder. Raises `ModelError` when it cannot be loaded or is not the one that made it."""
        with self._lock:
            if self._embedder is None:
                try:
                    self._embedder = self._load_embedder()
                except ModelError as error:
                    self._embedder = error
        if isinstance(self._embedder, ModelError):
            raise self._embedder
        return self._embedder

    def reranker(self, question: str) -> Reranker | None:
        """The reranker that reads `question`; None for `none`. Raises `ModelError` when there is none that can."""
        return self._rerankers.choose(question)

    def _load_embedder(self) -> Embedder:
        embedder = load_embedder(self._settings.embedder, self._settings)
        if embedder.name != self.space.embedder or embedder.dimension != self.space.dimension:
            raise ModelError(
                f"the stored vectors were made by {self.space.embedder} ({self.space.dimension} dimensions), the "
                f"embedder setting {self._settings.embedder!r} loads {embedder.name} ({embedder.dimension}): leave the "
                "setting out, or set it to the model that made them"
            )
        return embedder
