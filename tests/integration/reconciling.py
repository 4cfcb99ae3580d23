"""A small system whose vector table is spoiled and repaired, for the suites of `reconcile`. Does I/O."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from producers.settings import Settings
from query.answer import Answer
from query.question import Question
from query.recall import Recaller
from stepped import Stepped, turn
from workers.maintenance.run import RunReport, run_job
from workers.stores.catalog import Catalog
from workers.stores.scope import Scope
from workers.stores.spaces import StoredSpace

TURNS = 60
WORDS = "the kestrel{0}quartz flew over 证书{0}号，过期了"


def small_system(settings: Settings) -> Stepped:
    """Turns of one and of three chunks are stored, in several fragments."""
    settings = settings.model_copy(update={"lease": 1.0, "batch_wait": 0.0, "chunk_tokens": 64})
    stepped = Stepped(settings)
    for first in range(0, TURNS, 20):
        stepped.store(*(said(n) for n in range(first, first + 20)))
    assert stepped.counts() == (TURNS, TURNS + 6 * 2, TURNS + 6 * 2)
    return stepped


def said(number: int, text: str = WORDS) -> Any:
    long = 3 if number % 10 == 0 else 1
    return turn("\n\n".join([text.format(number) + " and on" * 25] * long), number, tenant="acme")


def run(system: Stepped) -> RunReport:
    return run_job("reconcile", system.settings, system.client)


def table_of(settings: Settings) -> Path:
    (folder,) = Path(settings.vectors_location).iterdir()
    return folder


def active(settings: Settings) -> StoredSpace:
    catalog = Catalog.open(settings.catalog_location)
    found = catalog.spaces.active()
    catalog.close()
    assert found is not None
    return found


def ask(settings: Settings, number: int = 7) -> Answer:
    return Recaller.open(settings).recall(Question(f"kestrel{number}quartz", Scope("acme")))
