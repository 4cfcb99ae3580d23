"""Dead letters: events that could not be stored, kept with the reason until someone replays or drops them. Does I/O."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import redis

from producers.errors import InvalidEvent, UsageError
from producers.events import parse_event
from producers.keys import ACCEPTED_FIELD, EVENT_FIELD, ORDER_FIELD, Keys
from producers.settings import LANES, Lane, Settings

PAGE = 500
_REPLAY = """
if redis.call('XDEL', KEYS[1], ARGV[1]) == 0 then return 0 end
redis.call('XADD', KEYS[2], '*', unpack(ARGV, 2))
return 1
"""
"""Keys: dead letters, stream; arguments: letter id, then the entry's fields. A letter that is gone stays gone."""


@dataclass(frozen=True)
class DeadLetter:
    """One dead letter, without the event's content."""

    id: str
    lane: Lane
    reason: str
    deliveries: int
    accepted_ms: int
    """When the stream took it, milliseconds since 1970."""
    died_ms: int
    tenant: str | None
    """None when the payload is not a valid event."""
    session_id: str | None
    turn_index: int | None
    bytes: int


class DeadLetters:
    """The dead-letter stream."""

    def __init__(self, client: redis.Redis, settings: Settings) -> None:
        self._client: Any = client  # redis-py types an answer as every form it could be decoded to; ours are bytes
        self._settings = settings
        self._keys = Keys(settings.key_prefix)

    def count(self) -> int:
        return int(self._client.xlen(self._keys.dead))

    def all(self) -> Iterator[DeadLetter]:
        """Oldest first."""
        for entry_id, fields in self._entries():
            yield self._describe(entry_id, fields)

    def replay(self, ids: Sequence[str] | None) -> int:
        """Put these (None: all) back onto their streams, with the order they first had; returns how many."""
        replayed = 0
        for entry_id, fields in self._chosen(ids):
            stream = self._keys.stream(_lane(fields))
            event = {name: fields[name] for name in (EVENT_FIELD, ORDER_FIELD, ACCEPTED_FIELD) if name in fields}
            # A letter without an event comes back as one: its stream entry has to hold something.
            flat = [part for item in (event or {EVENT_FIELD: b""}).items() for part in item]
            replayed += self._client.eval(_REPLAY, 2, self._keys.dead, stream, entry_id, *flat)
        return replayed

    def drop(self, ids: Sequence[str] | None) -> int:
        """Delete these (None: all) for good; returns how many."""
        chosen = [entry_id for entry_id, _ in self._chosen(ids)]
        for start in range(0, len(chosen), PAGE):
            self._client.xdel(self._keys.dead, *chosen[start : start + PAGE])
        return len(chosen)

    def _chosen(self, ids: Sequence[str] | None) -> list[tuple[bytes, dict[bytes, bytes]]]:
        entries = list(self._entries())
        if ids is None:
            return entries
        unknown = set(ids) - {entry_id.decode() for entry_id, _ in entries}
        if unknown:
            raise UsageError(f"no dead letter {sorted(unknown)[0]}; `scope-recall dead list` shows their ids")
        return [row for row in entries if row[0].decode() in ids]

    def _entries(self) -> Iterator[tuple[bytes, dict[bytes, bytes]]]:
        start = "-"
        while page := self._client.xrange(self._keys.dead, min=start, count=PAGE):
            yield from page
            start = f"({page[-1][0].decode()}"

    def _describe(self, entry_id: bytes, fields: dict[bytes, bytes]) -> DeadLetter:
        payload = fields.get(EVENT_FIELD, b"")
        try:
            event = parse_event(payload, self._settings)
        except InvalidEvent:
            event = None
        return DeadLetter(
            id=entry_id.decode(),
            lane=_lane(fields),
            reason=fields.get(b"reason", b"").decode(errors="replace"),
            deliveries=int(fields.get(b"deliveries", b"0")),
            accepted_ms=int(fields.get(b"accepted_ms", b"0")),
            died_ms=int(fields.get(b"died_ms", b"0")),
            tenant=event.tenant if event else None,
            session_id=event.session_id if event else None,
            turn_index=event.turn_index if event else None,
            bytes=len(payload),
        )


def _lane(fields: dict[bytes, bytes]) -> Lane:
    """The stream a dead letter came from; the live one when the entry does not say."""
    named = fields.get(b"lane", b"").decode()
    return next((lane for lane in LANES if lane == named), LANES[0])
