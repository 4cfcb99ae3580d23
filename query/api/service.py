"""What the query service holds for as long as it runs: stores, models, stream, and the lines before them. Does I/O."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from threading import Event, Lock, Thread
from typing import Generic, TypeVar

from producers.errors import ScopeRecallError
from producers.settings import Settings
from query.answer import Answer
from query.api.appender import Appender
from query.api.canary import Canary
from query.api.limits import Line
from query.question import Question
from query.recall import Recaller
from workers.stores.catalog import Catalog

T = TypeVar("T")

FORGETS_WAITING = 8
STATUSES_WAITING = 16
HISTORIES, HISTORIES_WAITING = 2, 16
"""At once and in line; a count looks through all of a tenant's turns, on one core."""
LOADING_SECONDS = 10.0
"""That a model which is being loaded is waited for at the end: a process that ends amid it may crash."""
WARM_UP_SECONDS = 2.0
"""Between two looks whether there is anything stored to load the models for."""


class Service:
    """Everything is opened when it is first needed: the service may start before anything is stored."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.recalls = Line("recall", settings.api_recalls, settings.api_recalls_waiting)
        self.forgets = Line("forget", 1, FORGETS_WAITING)
        """One at a time: they would wait for each other anyway."""
        self.statuses = Line("status", 1, STATUSES_WAITING)
        self.histories = Line("history", HISTORIES, HISTORIES_WAITING)
        self.appender = Appender(settings)
        self._canary_line = Line("canary", 1, 0)
        self.canary = Canary(
            self.appender.append,
            lambda question: self._canary_line.run(self.recall, question),
            settings.api_ready_seconds,
        )
        self._catalog = Once(lambda: Catalog.open(settings.catalog_location, create=True))
        self._recaller = Once(lambda: Recaller.open(settings))
        self._stopping = Event()
        self._warming = Thread(target=self._warm_up, name="warm-up", daemon=True)

    def catalog(self) -> Catalog:
        """The catalog, made if there is none: its keys are looked up before anything is stored."""
        return self._catalog.get()

    def recall(self, question: Question) -> Answer:
        """Answer a question. Safe for several threads, each with a connection of its own."""
        return self._recaller.get().recall(question)

    def start(self) -> None:
        """Load the models in the background, so that the first question need not wait for them."""
        self._warming.start()

    def close(self) -> None:
        """Let go of everything; turns that were taken are appended first."""
        self._stopping.set()
        self.appender.close()
        for line in (self.recalls, self.forgets, self.statuses, self.histories, self._canary_line):
            line.close()
        self._warming.join(LOADING_SECONDS)

    def _warm_up(self) -> None:
        while not self._stopping.is_set():
            with suppress(ScopeRecallError):  # nothing is stored yet, or a store is away; a question will say so
                self._recaller.get().warm_up()
                return
            self._stopping.wait(WARM_UP_SECONDS)


class Once(Generic[T]):
    """A part that is opened by the first who needs it, and again by the next when that failed."""

    def __init__(self, open_: Callable[[], T]) -> None:
        self._open = open_
        self._lock = Lock()
        self._part: T | None = None

    def get(self) -> T:
        with self._lock:
            if self._part is None:
                self._part = self._open()
            return self._part
