"""Turn events as JSON Lines, the same that `push` takes. Does I/O."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from producers.errors import InvalidEvent
from producers.events import valid_event
from producers.transcripts.json_objects import read_records
from producers.transcripts.outline import outlines
from producers.transcripts.port import Bad, Event, Item, ReadOptions, Sample, State

_REQUIRED = {"session_id", "turn_index", "role", "content"}


class Turns:
    """Passes the events through; the options change nothing about them."""

    name = "turns"
    in_place = False

    def recognises(self, sample: Sample) -> bool:
        return any(names >= _REQUIRED for names in outlines(sample))

    def read(self, path: Path, options: ReadOptions, state: State | None) -> Iterator[Item]:
        return read_records(path, state, _is_turn, _event, always_lines=True)


def _is_turn(value: dict[str, Any]) -> bool:
    return value.keys() >= _REQUIRED


def _event(value: dict[str, Any], place: str) -> Iterator[Item]:
    try:
        # as JSON, since that is what the model is strict about: a time is a text there
        yield Event(valid_event(json.dumps(value)), place)
    except InvalidEvent as error:
        yield Bad(place, error.without_values)
