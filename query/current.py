"""The models of the space that recall reads now, in a process that outlives a switch of spaces. Does I/O.

A new space's model takes seconds to load. Questions are answered from the space before meanwhile, which is still
written to, so that none of them waits or fails.
"""

from __future__ import annotations

import time
from threading import Lock, Thread

from producers.errors import ScopeRecallError, StoreUnavailable
from producers.logs import get_logger
from producers.settings import Settings
from query.models import Models
from workers.stores.catalog import Catalog
from workers.stores.spaces import StoredSpace

RETRY_SECONDS = 60.0
"""Until a model that could not be loaded is tried again."""

log = get_logger(__name__)


class CurrentModels:
    """Follows the active space. Safe for several threads."""

    def __init__(self, settings: Settings, catalog: Catalog, models: Models) -> None:
        self._settings = settings
        self._catalog = catalog
        self._lock = Lock()
        self._models = models
        self._loading: Thread | None = None
        self._rests_until = 0.0

    def models(self) -> Models:
        """Those to answer the next question with: one query, and never any loading."""
        try:
            spaces = self._catalog.spaces.all()
        except StoreUnavailable:  # whoever searches will meet it too, and says so
            return self._models
        active = next((one for one in spaces if one.state == "active"), None)
        with self._lock:
            known = self._models.space
            if active is None or active.space == known:
                return self._models
            if not any(one.space == known and one.state == "standby" for one in spaces):
                # Nothing is written there any more, so it must not be read, whether or not the new model is loaded.
                self._models = self._made_for(active, spaces)
            elif self._loading is None and time.monotonic() >= self._rests_until:
                fresh = self._made_for(active, spaces)
                self._loading = Thread(target=self._load, args=(fresh,), name="load-models", daemon=True)
                self._loading.start()
            return self._models

    def _made_for(self, active: StoredSpace, spaces: list[StoredSpace]) -> Models:
        fresh = Models(self._settings, active, spaces)
        fresh.take_rerankers(self._models)
        return fresh

    def _load(self, fresh: Models) -> None:
        problem: Exception | None = None
        try:
            fresh.embedder()
        except Exception as error:  # noqa: BLE001  # a thread's error reaches nobody; the space before still answers
            problem = error
        with self._lock:
            self._loading = None
            if problem is None:
                log.info("recall_switched", space=fresh.space.id, before=self._models.space.id)
                self._models = fresh
                return
            self._rests_until = time.monotonic() + RETRY_SECONDS
        reason = str(problem) if isinstance(problem, ScopeRecallError) else type(problem).__name__
        log.warning("model_not_loaded", space=fresh.space.id, reason=reason, seconds=RETRY_SECONDS)
