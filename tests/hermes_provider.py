"""The plug-in without Hermes, for tests, and what has become of its turns. Does I/O."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from producers.connection import connect
from producers.events import TurnEvent
from producers.hermes.provider import ScopeRecallProvider
from producers.hermes.settings import save
from producers.keys import EVENT_FIELD, Keys
from producers.settings import Settings
from producers.spool import spooled_events

Make = Callable[..., ScopeRecallProvider]
KEY = "sk-" + "a1b2c3d4" * 6


@contextmanager
def providers(home: Path, **common: Any) -> Iterator[Make]:
    """Makes providers in one home, each as a new process would: (session, facts, changed settings)."""
    made = []

    def one(session: str = "s", facts: dict[str, Any] | None = None, **changes: Any) -> ScopeRecallProvider:
        save(common | changes, home)
        provider = ScopeRecallProvider()
        provider.initialize(session, hermes_home=str(home), **({"platform": "cli"} | (facts or {})))
        made.append(provider)
        return provider

    yield one
    for provider in made:
        provider.shutdown()


def streamed(settings: Settings) -> list[TurnEvent]:
    """What is on the live stream, oldest first."""
    with connect(settings) as client:
        entries: Any = client.xrange(Keys(settings.key_prefix).stream("live"))
    return [TurnEvent.model_validate_json(fields[EVENT_FIELD]) for _, fields in entries]


def kept(settings: Settings) -> list[TurnEvent]:
    """What waits in the spool."""
    return [TurnEvent.model_validate_json(record.payload) for record in spooled_events(settings)]


def contents(events: list[TurnEvent]) -> list[str]:
    return [event.content for event in events]


def eventually(found: Callable[[], Any], wanted: Any) -> None:
    """Wait until it is so."""
    deadline = time.monotonic() + 10
    while found() != wanted:
        assert time.monotonic() < deadline, (found(), wanted)
        time.sleep(0.02)
