"""Which reranker reads a question. Loads each at its first need and keeps it; a failure to load is remembered."""

from __future__ import annotations

from threading import Lock

from producers.errors import ModelError
from producers.scripts import foreign_scripts
from producers.settings import Settings
from query.reranking.port import Reranker
from query.reranking.registry import MULTILINGUAL, PACKAGED, PACKAGED_SCRIPTS, load_reranker


class Rerankers:
    """The rerankers of one process. Safe for several threads; a question waits for the loading of its own alone."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lock = Lock()
        self._locks: dict[str, Lock] = {}
        self._loaded: dict[str, Reranker | ModelError | None] = {}

    def choose(self, question: str) -> Reranker | None:
        """The reranker for `question`; None for the setting `none`.

        `auto` is the packaged multilingual model; where it is not installed, the packaged English one.
        Raises `ModelError` when the chosen one cannot be loaded or does not speak the question's scripts.
        """
        name = self._settings.reranker
        if name != "auto":
            return _speaking(self._load(name), question)
        try:
            return self._load(MULTILINGUAL)
        except ModelError as error:
            missing = error
        foreign = foreign_scripts(question, PACKAGED_SCRIPTS)
        if foreign:
            raise ModelError(
                f"{PACKAGED} does not speak the question's script ({', '.join(foreign)}), and the one that would is "
                f"not there: {missing}"
            )
        return self._load(PACKAGED)

    def _load(self, name: str) -> Reranker | None:
        with self._lock:
            lock = self._locks.setdefault(name, Lock())
        with lock:
            if name not in self._loaded:
                try:
                    self._loaded[name] = load_reranker(name, self._settings)
                except ModelError as error:
                    self._loaded[name] = error
            found = self._loaded[name]
        if isinstance(found, ModelError):
            raise found
        return found


def _speaking(reranker: Reranker | None, question: str) -> Reranker | None:
    foreign = [] if reranker is None else foreign_scripts(question, reranker.scripts)
    if reranker is not None and foreign:
        raise ModelError(f"{reranker.name} does not speak the question's script ({', '.join(foreign)})")
    return reranker
