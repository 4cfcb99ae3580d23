"""The two ways in which turns leave: onto the Redis stream, or to the service over HTTP. Does I/O.

Either way `send` returns when the turns have arrived or are on this machine's disk, and `deliver` sends what waits
there.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Protocol

from producers.connection import BRIEF_ANSWER, connect_briefly
from producers.errors import RetryableError, ServiceAway, ServiceRefused
from producers.events import TurnEvent
from producers.hermes.outbox import Outbox
from producers.hermes.pause import log
from producers.hermes.service import Service
from producers.settings import Settings
from producers.spool import Spool
from producers.stream import EventStream

DELIVER_SECONDS = 1.0
BATCH = 50
"""Turns in one request."""
_TOO_LARGE = 413


class Sender(Protocol):
    """Safe for several threads."""

    def send(self, events: Sequence[TurnEvent]) -> None:
        """Send them now, or keep them on the disk. Raises `RetryableError` when neither could be done."""

    def keep(self, events: Sequence[TurnEvent]) -> None:
        """Keep them on the disk, to be sent by `deliver`. Raises `RetryableError`."""

    def deliver(self) -> bool:
        """Send what waits, for about a second. True when nothing is left. Raises `RetryableError`, `ServiceRefused`."""

    def waiting(self) -> int:
        """Turns of this sender that wait on the disk."""

    def close(self) -> None: ...


class StreamSender:
    """Through the same stream and spool as every producer."""

    def __init__(self, settings: Settings) -> None:
        # Hermes gives all its turns 5 s at its end, also when Redis hangs.
        self._stream = EventStream(settings, client=connect_briefly(settings))
        self._beside = Spool(settings, "live")
        """For what is not even tried; a spool file is sent by whoever comes first."""

    def send(self, events: Sequence[TurnEvent]) -> None:
        try:
            self._stream.append(events)
        except RetryableError as error:
            # Full, or refused for good: part of them may be there already, and will be the same turns.
            self._beside.append([event.to_json() for event in events], str(error))

    def keep(self, events: Sequence[TurnEvent]) -> None:
        self._beside.append([event.to_json() for event in events], "nothing was tried yet")

    def deliver(self) -> bool:
        return self._stream.send_spooled(DELIVER_SECONDS)

    def waiting(self) -> int:
        return self._stream.spooled().events + self._beside.own().events

    def close(self) -> None:
        self._stream.close()


class HttpSender:
    """By POST /v1/turns, out of the outbox."""

    def __init__(self, service: Service, outbox: Outbox) -> None:
        self._service = service
        self._outbox = outbox

    def send(self, events: Sequence[TurnEvent]) -> None:
        self._outbox.add(events)

    def keep(self, events: Sequence[TurnEvent]) -> None:
        self._outbox.add(events)

    def deliver(self) -> bool:
        rows = self._outbox.first(BATCH)
        if rows:
            self._post(rows)
        return self._outbox.waiting() == 0

    def waiting(self) -> int:
        return self._outbox.waiting()

    def close(self) -> None:
        self._service.close()

    def _post(self, rows: Sequence[tuple[int, bytes]]) -> None:
        try:
            answer = self._service.ask(
                "/v1/turns", {"turns": [json.loads(event) for _, event in rows]}, DELIVER_SECONDS + BRIEF_ANSWER
            )
        except ServiceRefused as error:
            if error.status != _TOO_LARGE:
                raise
            if len(rows) == 1:
                self._outbox.refused(rows[0][0], "too large")
                log.error("a turn is larger than the service takes; it stays in the outbox and is not sent again")
                return
            for half in (rows[: len(rows) // 2], rows[len(rows) // 2 :]):
                self._post(half)
            return
        self._settle(rows, answer.get("results"))

    def _settle(self, rows: Sequence[tuple[int, bytes]], results: Any) -> None:
        verdicts = results if isinstance(results, list) else []
        accepted = []
        for (identifier, _), verdict in zip(rows, verdicts, strict=False):
            status = verdict.get("status") if isinstance(verdict, dict) else None
            if status == "accepted":
                accepted.append(identifier)
            elif status == "rejected":
                field = str(verdict.get("field"))[:100]
                self._outbox.refused(identifier, field)
                log.error("the service rejects a turn for its field %s; it stays in the outbox, not sent again", field)
            else:
                verdicts = []
        self._outbox.sent(accepted)
        if len(verdicts) < len(rows):
            raise ServiceAway("the service's answer lacks a result for each turn; is it of the same version?")
