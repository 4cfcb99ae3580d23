"""Stores without processes: turns go in through the real ingest pipeline, questions are asked of a real recaller."""

from __future__ import annotations

from typing import Any

from producers.events import TurnEvent
from producers.settings import Settings
from query.answer import Answer
from query.question import Question
from query.recall import Recaller
from workers.embedding.registry import load_embedder
from workers.ingest import Arrival, Pipeline
from workers.order import entry_order
from workers.runtime import space_of
from workers.stores.catalog import Catalog
from workers.stores.scope import Scope
from workers.stores.spaces import StoredSpace
from workers.stores.vectors import VectorStore


class Memory:
    """Stores filled by the real ingest pipeline, without the stream in front of it."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        embedder = load_embedder(settings.embedder, settings)
        self.space = space_of(embedder, settings)
        self.catalog = Catalog.open(settings.catalog_location, create=True)
        self.catalog.spaces.adopt(StoredSpace(self.space, settings.embedder, embedder.scripts))
        self.vectors = VectorStore(settings.vectors_location)
        self.pipeline = Pipeline(self.catalog, self.vectors, embedder, self.space)
        self._entries = 0

    def store(self, *events: TurnEvent) -> None:
        arrivals = []
        for event in events:
            self._entries += 1
            arrivals.append(Arrival(event, entry_order(f"{self._entries}-0")))
        self.pipeline.store(arrivals)

    def ask(self, text: str, scope: Scope | None = None, *, settings: Settings | None = None, **sizes: Any) -> Answer:
        recaller = Recaller.open(settings or self.settings)
        return recaller.recall(Question(text, scope or Scope("t"), **sizes))


def turn(content: str, index: int = 0, **fields: Any) -> TurnEvent:
    return TurnEvent(**{"tenant": "t", "session_id": "s", "role": "user", **fields}, turn_index=index, content=content)


def contents(answer: Answer) -> list[str]:
    return [hit.content for hit in answer.hits]
