"""Turns on their way to the query service or a stream: checked, cut into batches, and what became of each. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from producers.errors import InvalidEvent, InvalidRequest, Rejected, ServiceAway, TurnsRejected, UnexpectedAnswer
from producers.events import TurnEvent, check_sizes, parse_event
from producers.settings import Settings

BATCH_TURNS = 500
BATCH_BYTES = 1 << 20
"""Of one request, unless a single turn is larger."""
MAX_LISTED = 1000

Turn = TurnEvent | Mapping[str, Any]
"""A turn, or its fields as in a line of `scope-recall push`."""


@dataclass(frozen=True)
class Item:
    """A checked turn."""

    position: int
    """Among the turns of the call, from 0."""
    event: TurnEvent
    payload: bytes
    """Its JSON."""


@dataclass
class Push:
    """What becomes of the turns of one call."""

    accepted: int = 0
    count: int = 0
    """How many were rejected."""
    rejected: list[Rejected] = field(default_factory=list)

    def reject(self, position: int, reason: str) -> None:
        self.count += 1
        if len(self.rejected) < MAX_LISTED:
            self.rejected.append(Rejected(position, reason))

    def result(self) -> int:
        """How many turns were accepted. Raises `TurnsRejected` when some were not."""
        if self.count:
            raise TurnsRejected(self.accepted, self.count, self.rejected)
        return self.accepted

    def batches(self, turns: Turn | Iterable[Turn], settings: Settings) -> Iterator[list[Item]]:
        """The turns that pass the checks, in batches of one request; the others are rejected.

        Raises `InvalidEvent` for what is neither a turn nor several.
        """
        batch: list[Item] = []
        size = 0
        for position, turn in enumerate(_several(turns)):
            try:
                event = checked(turn, settings)
            except InvalidEvent as error:
                self.reject(position, str(error))
                continue
            item = Item(position, event, event.to_json())
            if batch and (len(batch) >= BATCH_TURNS or size + len(item.payload) > BATCH_BYTES):
                yield batch
                batch, size = [], 0
            batch.append(item)
            size += len(item.payload)
        if batch:
            yield batch

    def read(self, batch: list[Item], answer: Any) -> None:
        """Take in what the service answered. Raises `ServiceAway` when it did not decide about some of them."""
        results = answer.get("results") if isinstance(answer, dict) else None
        if not isinstance(results, list) or len(results) != len(batch):
            got = f"{len(results)} results" if isinstance(results, list) else "no results"
            raise UnexpectedAnswer(f"{got} for {len(batch)} turns: another version of the service?")
        undecided = 0
        for item, result in zip(batch, results, strict=True):
            status = result.get("status") if isinstance(result, dict) else None
            if status == "accepted":
                self.accepted += 1
            elif status == "rejected":
                reason, field_name = str(result.get("reason") or "no reason given"), result.get("field")
                named = not field_name or reason.startswith(str(field_name))
                self.reject(item.position, reason if named else f"{field_name}: {reason}")
            else:
                undecided += 1
        if undecided:
            raise ServiceAway(f"the service took {len(batch) - undecided} of {len(batch)} turns; push them again later")

    def halves(self, batch: list[Item], refusal: InvalidRequest) -> list[list[Item]]:
        """Two smaller requests for one that was refused; a turn that is refused alone is rejected."""
        if len(batch) == 1:
            self.reject(batch[0].position, str(refusal))
            return []
        half = len(batch) // 2
        return [batch[:half], batch[half:]]


def _several(turns: object) -> Iterable[Turn]:
    if isinstance(turns, TurnEvent | Mapping):
        return [turns]
    if isinstance(turns, str | bytes) or not isinstance(turns, Iterable):
        raise InvalidEvent(f"turns: a turn or a list of turns is due, got {type(turns).__name__}")
    return turns


def checked(turn: Turn, settings: Settings) -> TurnEvent:
    """The turn as an event within the limits. Raises `InvalidEvent`."""
    if isinstance(turn, TurnEvent):
        check_sizes(turn, settings)
        return turn
    try:
        return parse_event(json.dumps(turn, ensure_ascii=False, default=_plain), settings)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidEvent(f"not a turn: {error}", without_values="not a turn") from None


def _plain(value: object) -> object:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is not JSON")


def turns_body(batch: list[Item]) -> bytes:
    """The body of `POST /v1/turns`."""
    return b'{"turns":[' + b",".join(item.payload for item in batch) + b"]}"
