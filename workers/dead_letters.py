"""Dead letters: events that could not be stored, kept with the reason until someone replays or drops them. Does I/O.

There may be very many, of up to a megabyte each: whatever goes over all of them holds one page at a time, and ends with
the letters that were there when it began.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import redis

from producers.errors import InvalidEvent, UsageError
from producers.events import parse_event
from producers.keys import ACCEPTED_FIELD, DEATHS_FIELD, EVENT_FIELD, FIRST_DIED_FIELD, ORDER_FIELD, Keys
from producers.settings import LANES, Lane, Settings

PAGE = 64
"""Letters in one round trip; at the content limit of 1 MiB that is 64 MiB."""
_REPLAY = """
if redis.call('XDEL', KEYS[1], ARGV[1]) == 0 then return 0 end
redis.call('XADD', KEYS[2], '*', unpack(ARGV, 2))
return 1
"""
"""Keys: dead letters, stream; arguments: letter id, then the entry's fields. A letter that is gone stays gone."""
_NUMBER = re.compile(r"\d[\d,]*")

Row = tuple[bytes, dict[bytes, bytes]]


@dataclass(frozen=True)
class DeadLetter:
    """One dead letter, without the event's content."""

    id: str
    lane: Lane
    reason: str
    deliveries: int
    """How often it was tried before it became this letter."""
    deaths: int
    """How often it became a letter; 2 and more when a replay did not help."""
    accepted_ms: int
    """When the stream first took it, milliseconds since 1970."""
    first_died_ms: int
    died_ms: int
    """When it last became a letter."""
    tenant: str | None
    """None when the payload is not a valid event."""
    session_id: str | None
    turn_index: int | None
    bytes: int


@dataclass(frozen=True)
class ReasonGroup:
    """The letters of one reason."""

    reason: str
    """With N for every number, so that two lengths of a text are one reason."""
    count: int
    first_died_ms: int
    died_ms: int
    """When the last of them died."""


@dataclass(frozen=True)
class Choice:
    """Which letters: those with these ids, or all whose reason contains `reason`; the empty one takes all."""

    ids: Sequence[str] = ()
    reason: str = ""


EVERYTHING = Choice()


class DeadLetters:
    """The dead-letter stream."""

    def __init__(self, client: redis.Redis, settings: Settings) -> None:
        self._client: Any = client  # redis-py types an answer as every form it could be decoded to; ours are bytes
        self._settings = settings
        self._keys = Keys(settings.key_prefix)

    def count(self) -> int:
        return int(self._client.xlen(self._keys.dead))

    def all(self, choice: Choice = EVERYTHING) -> Iterator[DeadLetter]:
        """Oldest first. Raises `UsageError` for an id that is not there."""
        for row in self._rows(choice):
            yield self._describe(*row)

    def by_reason(self, choice: Choice = EVERYTHING) -> list[ReasonGroup]:
        """The letters counted by reason, the most frequent first."""
        groups: dict[str, ReasonGroup] = {}
        for _, fields in self._rows(choice):
            reason = _NUMBER.sub("N", _reason(fields))
            first, last = _number(fields, FIRST_DIED_FIELD), _number(fields, b"died_ms")
            known = groups.get(reason, ReasonGroup(reason, 0, first, last))
            groups[reason] = ReasonGroup(
                reason, known.count + 1, min(known.first_died_ms, first), max(known.died_ms, last)
            )
        return sorted(groups.values(), key=lambda group: -group.count)

    def replay(self, choice: Choice = EVERYTHING) -> int:
        """Put these back onto their streams, with the order they first had and how often they died; returns how many.

        Whenever it is interrupted, each letter is in one of both places.
        """
        replayed = 0
        for page in _pages(self._rows(choice)):
            pipeline = self._client.pipeline(transaction=False)
            for entry_id, fields in page:
                kept = {name: fields[name] for name in _KEPT if name in fields}
                # A letter without an event comes back as one: its stream entry has to hold something.
                flat = [part for item in (kept or {EVENT_FIELD: b""}).items() for part in item]
                pipeline.eval(_REPLAY, 2, self._keys.dead, self._keys.stream(_lane(fields)), entry_id, *flat)
            replayed += sum(pipeline.execute())
        return replayed

    def drop(self, choice: Choice = EVERYTHING) -> int:
        """Delete these for good; returns how many."""
        dropped = 0
        for page in _pages(self._rows(choice)):
            dropped += self._client.xdel(self._keys.dead, *(entry_id for entry_id, _ in page))
        return dropped

    def _rows(self, choice: Choice) -> Iterator[Row]:
        """The chosen letters, a page in memory at a time."""
        rows = self._named(choice.ids) if choice.ids else self._entries()
        return (row for row in rows if choice.reason.casefold() in _reason(row[1]).casefold())

    def _named(self, ids: Sequence[str]) -> Iterator[Row]:
        """The letters of these ids; all of them are looked for before the first is returned."""
        distinct = list(dict.fromkeys(ids))
        for letter in distinct:
            if not re.fullmatch(r"\d{1,19}-\d{1,19}", letter) or not self._client.xrange(
                self._keys.dead, letter, letter
            ):
                raise UsageError(f"no dead letter {letter}; `scope-recall dead list` shows their ids")
        for letter in distinct:
            yield from self._client.xrange(self._keys.dead, letter, letter)

    def _entries(self) -> Iterator[Row]:
        newest = self._client.xrevrange(self._keys.dead, count=1)
        # What dies while this runs is not gone over: a replayed letter that dies at once would be, for ever.
        last = newest[0][0].decode() if newest else "0-0"
        start = "-"
        while page := self._client.xrange(self._keys.dead, min=start, max=last, count=PAGE):
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
            reason=_reason(fields),
            deliveries=_number(fields, b"deliveries"),
            deaths=_number(fields, DEATHS_FIELD),
            accepted_ms=_number(fields, b"accepted_ms"),
            first_died_ms=_number(fields, FIRST_DIED_FIELD),
            died_ms=_number(fields, b"died_ms"),
            tenant=event.tenant if event else None,
            session_id=event.session_id if event else None,
            turn_index=event.turn_index if event else None,
            bytes=len(payload),
        )


_KEPT = (ACCEPTED_FIELD, EVENT_FIELD, ORDER_FIELD, FIRST_DIED_FIELD, DEATHS_FIELD)
"""What a replayed entry carries, so that a letter that dies again is known to have died before."""


def _pages(rows: Iterator[Row]) -> Iterator[list[Row]]:
    while page := list(islice(rows, PAGE)):
        yield page


def _reason(fields: dict[bytes, bytes]) -> str:
    return fields.get(b"reason", b"").decode(errors="replace")


def _number(fields: dict[bytes, bytes], name: bytes) -> int:
    return int(fields.get(name, b"0"))


def _lane(fields: dict[bytes, bytes]) -> Lane:
    """The stream a dead letter came from; the live one when the entry does not say."""
    named = fields.get(b"lane", b"").decode()
    return next((lane for lane in LANES if lane == named), LANES[0])
