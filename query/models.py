"""The models of one recaller: loaded at first use, kept, and a failure to load remembered. Does I/O."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from threading import Lock

from producers.errors import EmbedderUnavailable, ModelError
from producers.settings import Settings
from query.reranking.port import Reranker
from query.reranking.registry import load_reranker
from workers.embedding.port import Embedder
from workers.embedding.registry import load_embedder
from workers.runtime import following
from workers.stores.spaces import StoredSpace


class Models:
    """Embedder and reranker for one space. Safe for several threads."""

    def __init__(self, settings: Settings, active: StoredSpace, beside: Sequence[StoredSpace] = ()) -> None:
        """The embedder is the one that made the space. The setting counts only when it was given, and is not what one
        of the spaces `beside` was made by."""
        self._settings = following(active, settings, beside)
        self.space = active.space
        self._lock = Lock()
        self._embedder: Embedder | ModelError | None = None
        self._reranker: Reranker | ModelError | None = None
        self._reranker_loaded = False

    def take_reranker(self, other: Models) -> None:
        """Use the reranker that `other` has loaded: it reads texts, and does not depend on the space."""
        with other._lock:
            self._reranker, self._reranker_loaded = other._reranker, other._reranker_loaded

    def load(self) -> None:
        """Load what is not loaded yet; a model that cannot be loaded says so when it is asked for."""
        for get in (self.embedder, self.reranker):
            with suppress(ModelError, EmbedderUnavailable):
                get()

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

    def reranker(self) -> Reranker | None:
        """The reranker of the settings; None for `none`. Raises `ModelError` when it cannot be loaded."""
        with self._lock:
            if not self._reranker_loaded:
                try:
                    self._reranker = load_reranker(self._settings.reranker, self._settings)
                except ModelError as error:
                    self._reranker = error
                self._reranker_loaded = True
        if isinstance(self._reranker, ModelError):
            raise self._reranker
        return self._reranker

    def _load_embedder(self) -> Embedder:
        embedder = load_embedder(self._settings.embedder, self._settings)
        if embedder.name != self.space.embedder or embedder.dimension != self.space.dimension:
            raise ModelError(
                f"the stored vectors were made by {self.space.embedder} ({self.space.dimension} dimensions), the "
                f"embedder setting {self._settings.embedder!r} loads {embedder.name} ({embedder.dimension}): leave the "
                "setting out, or set it to the model that made them"
            )
        return embedder
