"""The encoders of every space that turns are written to: loaded when a space appears, let go of with it. Loads models.

Only the active space may hold a batch up. A turn that another space's model cannot take now is left out of that space,
and the job `reembed` brings it in later.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from producers.errors import ModelError, ScopeRecallError
from producers.logs import get_logger
from workers.chunking import Chunk
from workers.embedding.batch import NATIVE_FAILURES
from workers.embedding.port import Embedder
from workers.encoding import Encoded, Encoder
from workers.stores.catalog import Catalog
from workers.stores.space import Space
from workers.stores.spaces import StoredSpace

REST_SECONDS = 60.0
"""How long a model that fails is left alone, so that it slows down no batch but one a minute."""
Load = Callable[[StoredSpace], Embedder]

log = get_logger(__name__)


class Encoders:
    """The encoders of one worker. For one thread."""

    def __init__(self, catalog: Catalog, active: Encoder, load: Load) -> None:
        self._catalog = catalog
        self._load = load
        self._loaded = {active.space.id: active}
        self._rests_until: dict[str, float] = {}
        self.active = active
        """Of the space that recall reads."""
        self.spaces: list[Space] = [active.space]
        """Every space that turns are written to."""

    def refresh(self) -> None:
        """Look which spaces there are: one query, and the loading of a model that is new.

        Raises what loading the active space's model raises; another one that cannot be loaded stays out.
        """
        written = self._catalog.spaces.written()
        self.spaces = [one.space for one in written]
        names = {space.id for space in self.spaces}
        for stored in written:
            if stored.space.id not in self._loaded:
                self._add(stored)
            if stored.state == "active":
                self.active = self._loaded[stored.space.id]
        for gone in self._loaded.keys() - names:
            del self._loaded[gone]

    @property
    def beside(self) -> list[Encoder]:
        """Those of the other spaces that work now."""
        return [one for name, one in self._loaded.items() if one is not self.active and not self._rests(name)]

    def embed_beside(
        self, encoder: Encoder, turns: Sequence[list[Chunk]], pause: Callable[[], None], pace: float
    ) -> list[Encoded | None]:
        """One a turn, None for one that stays out of this space for now."""
        try:
            encoded, why = encoder.embed_what_can_be(turns, pause, pace)
        except (ScopeRecallError, *NATIVE_FAILURES) as error:
            self._rest(encoder.space, error)
            return [None] * len(turns)
        if why is not None:
            log.warning("left_out_of_space", space=encoder.space.id, turns=encoded.count(None), reason=str(why))
        return encoded

    def _add(self, stored: StoredSpace) -> None:
        name = stored.space.id
        if stored.state == "active":
            self._loaded[name] = Encoder(stored.space, self._load(stored))
        elif not self._rests(name):
            try:
                self._loaded[name] = Encoder(stored.space, self._load(stored))
            except (ScopeRecallError, OSError, *NATIVE_FAILURES) as error:
                self._rest(stored.space, error)

    def _rests(self, name: str) -> bool:
        return time.monotonic() < self._rests_until.get(name, 0.0)

    def _rest(self, space: Space, error: Exception) -> None:
        self._rests_until[space.id] = time.monotonic() + REST_SECONDS
        reason = str(error) if isinstance(error, ScopeRecallError) else type(error).__name__
        log.warning("space_left_out", space=space.id, reason=reason, seconds=REST_SECONDS)


def no_other(stored: StoredSpace) -> Embedder:
    """The `load` of a worker that has one model and no way to another."""
    raise ModelError(f"no model for space {stored.space.id}")
