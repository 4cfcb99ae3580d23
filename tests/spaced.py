"""A stepped system whose stores can be looked at by space, and turns for it."""

from __future__ import annotations

from typing import Any

from producers.events import TurnEvent
from producers.settings import Settings
from query.answer import Answer
from query.question import Question
from query.recall import Recaller
from stepped import Stepped, turn
from workers.embedding.registry import load_embedder
from workers.maintenance.run import run_job
from workers.runtime import space_of
from workers.stores.catalog import Catalog
from workers.stores.scope import Scope
from workers.stores.space import Space
from workers.stores.spaces import Plan, StoredSpace
from workers.stores.vectors import VectorStore

WORDS = "heron weir kestrel quartz lantern harbour ledger copper willow basalt cinder mallow".split()


def said(number: int, **fields: Any) -> TurnEvent:
    words = [WORDS[(number * step + step) % len(WORDS)] for step in range(1, 6)]
    return turn(f"turn {number} of many speaks of {' and '.join(words)} number{number}", number, tenant="t", **fields)


class Spaced(Stepped):
    """A stepped system whose catalog and vectors can be looked at by space."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.catalog = Catalog.open(settings.catalog_location)
        self.vectors = VectorStore(settings.vectors_location)

    def begin(self, setting: str, **plan: Any) -> Space:
        embedder = load_embedder(setting, self.settings)
        stored = StoredSpace(space_of(embedder, self.settings), setting, None, "building", plan=Plan(**plan))
        return self.catalog.spaces.begin_building(stored).space

    def run(self) -> str | None:
        return run_job("reembed", self.settings, self.client).did

    @property
    def active(self) -> Space:
        found = self.catalog.spaces.active()
        assert found is not None
        return found.space

    def store(self, *events: TurnEvent) -> None:
        self.push(*events)
        self.settle()

    def exact(self, space: Space) -> int:
        """How many turns the space holds; both stores hold the same chunks of it, each once."""
        stored = sorted(self.vectors.keys(space))
        assert stored == list(self.catalog.vector_ids(space))
        filled, turns = self.catalog.filling.filled_and_turns(space)
        assert filled == turns
        return turns


def asked(system: Spaced, text: str = "kestrel quartz", recaller: Recaller | None = None) -> Answer:
    return (recaller or Recaller.open(system.settings)).recall(Question(text, Scope("t"), k=10))
