"""One session of the chat: its newest turns, also those on their way, and the next turn's index. Does I/O.

Turns are looked for where they are in the order in which they travel: spool, stream, catalog. So one that moves
meanwhile is seen at least once.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from producers.connection import connect, mapped_errors
from producers.errors import InvalidEvent, NotReady, ScopeRecallError
from producers.events import TurnEvent, valid_event
from producers.keys import EVENT_FIELD, Keys
from producers.settings import Settings
from producers.spool import spooled_events
from workers.stores.catalog import Catalog
from workers.stores.history import Part
from workers.stores.scope import Scope

TAIL_TURNS = 200
"""Newest turns of a session that are looked at."""
STREAM_ENTRIES = 10_000
"""Newest entries of the live stream that are looked at; a session's own are among them unless a flood came since."""
PAGE = 500
SAID = ("user", "assistant")


@dataclass(frozen=True)
class History:
    """The newest turns of a session, as the prompt shows them."""

    turns: list[TurnEvent]
    """In order; a long one is its beginning."""
    reach: int
    """How many of the session's newest turns they stand for, with those that are not shown."""


class Session:
    """A session that goes on. `is_new`: nobody else knows its id, so nothing is looked for."""

    def __init__(self, settings: Settings, tenant: str, session_id: str, *, is_new: bool, is_remote: bool) -> None:
        """`is_remote`: the turns go to a query service, and what it holds cannot be seen here."""
        self.tenant = tenant
        self.id = session_id
        self._settings = settings
        self._turns: dict[tuple[int, str], TurnEvent] = {}
        self._next = 0
        self._looks = not is_new and not is_remote
        self._is_above = is_new
        """The next index is above that of every turn, whatever cannot be seen."""

    def next_index(self) -> int:
        """The index of the next turn, above that of every turn there is; looks again, for others may write as well."""
        is_sure = self._looks and self._look()
        if not is_sure and not self._is_above:
            # A turn that cannot be seen must not be replaced: far above it, and from there on as always.
            self._next = max(self._next, time.time_ns() // 1_000_000)
            self._is_above = True
        return self._next

    def add(self, event: TurnEvent) -> None:
        """Take in a turn that was said or found."""
        self._next = max(self._next, event.turn_index + 1)
        self._turns[event.turn_index, event.role] = event
        while len(self._turns) > TAIL_TURNS:
            del self._turns[min(self._turns)]

    def history(self, chars: int) -> History:
        """The newest turns that fit into `chars` characters together; none takes more than half of them."""
        kept: list[TurnEvent] = []
        reach, most = 0, chars // 2
        for number, place in enumerate(sorted(self._turns, reverse=True) if most else (), 1):
            event = self._turns[place]
            if event.role not in SAID:
                continue
            chars -= min(len(event.content), most)
            if chars < 0:
                break
            kept.append(event if len(event.content) <= most else _beginning(event, most))
            reach = number
        return History(kept[::-1], reach)

    def _look(self) -> bool:
        """Take in what can be found; False when a turn may be where it cannot be seen."""
        found: list[TurnEvent] = []
        sure = True
        for place in (self._spooled, self._in_stream, self._stored):
            try:
                found = [*place(), *found]  # what travels is newer than what is stored
            except NotReady:
                continue  # nothing has been stored yet
            except ScopeRecallError:
                sure = False
        for event in found:
            self.add(event)
        return sure

    def _spooled(self) -> list[TurnEvent]:
        return list(self._ours(record.payload for record in spooled_events(self._settings)))

    def _in_stream(self) -> list[TurnEvent]:
        with connect(self._settings) as client, mapped_errors(self._settings):
            return list(self._ours(_newest(client, Keys(self._settings.key_prefix).stream("live"))))[::-1]

    def _stored(self) -> list[TurnEvent]:
        with closing(Catalog.open(self._settings.catalog_location)) as catalog:
            return list(catalog.history.turns(Scope(self.tenant, (self.id,)), Part(last=TAIL_TURNS)))

    def _ours(self, payloads: Iterable[bytes]) -> Iterator[TurnEvent]:
        name = json.dumps(self.id, ensure_ascii=False).encode()
        for payload in payloads:
            if name not in payload:
                continue  # most are others', and parsing takes longer than looking
            try:
                event = valid_event(payload)
            except InvalidEvent:
                continue
            if (event.tenant, event.session_id) == (self.tenant, self.id):
                yield event


def _beginning(event: TurnEvent, chars: int) -> TurnEvent:
    return event.model_copy(update={"content": f"{event.content[:chars]} […]"})


def _newest(client: Any, stream: str) -> Iterator[bytes]:
    """The newest events of a stream, newest first."""
    last = "+"
    for _ in range(STREAM_ENTRIES // PAGE):
        entries = client.xrevrange(stream, max=last, count=PAGE)
        for _, fields in entries:
            yield fields.get(EVENT_FIELD, b"")
        if len(entries) < PAGE:
            return
        last = "(" + entries[-1][0].decode()
