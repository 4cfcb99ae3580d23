"""Records of a JSON file, whichever way it holds them: JSON Lines, an array, one object, or several in a row. Does I/O."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from producers.transcripts.json_lines import lines, opened
from producers.transcripts.json_stream import Element, elements
from producers.transcripts.port import SAMPLE_BYTES, Bad, Item, Mark, State

MARK_ITEMS = 300
MARK_BYTES = 8 << 20
"""Bytes between two marks at most, where few of them are turns."""


@dataclass(frozen=True)
class _Entry:
    """What stands at one place."""

    found: list[dict[str, Any] | str]
    place: str
    behind: tuple[int, int] | None
    """Offset and number to go on with; None where the file may be cut off, and what is there is read again."""


def read_records(
    path: Path,
    state: State | None,
    is_whole: Callable[[dict[str, Any]], bool],
    items_of: Callable[[dict[str, Any], str], Iterator[Item]],
    remembered: Callable[[], State] = dict,
) -> Iterator[Item]:
    """What `items_of` makes of each record and its place, with `Bad` for what is none, and marks.

    `is_whole`: whether an object is a record, and not a piece of a broken one. `remembered`: what else a mark keeps.
    """
    size = max(1, path.stat().st_size)
    offset, number = (state["offset"], state["number"]) if state else (0, 0)
    count, marked = 0, offset

    def mark(done: float) -> Mark:
        return Mark({"offset": offset, "number": number, **remembered()}, min(1.0, done))

    for entry in _entries(path, offset, number, is_whole):
        for found in entry.found:
            for item in _items(found, entry.place, items_of):
                count += 1
                yield item
        if entry.behind is None:
            continue
        offset, number = entry.behind
        if count >= MARK_ITEMS or offset - marked >= MARK_BYTES:
            yield mark(offset / size)
            count, marked = 0, offset
    yield mark(1.0)


def _items(
    found: dict[str, Any] | str, place: str, items_of: Callable[[dict[str, Any], str], Iterator[Item]]
) -> Iterator[Item]:
    if isinstance(found, str):
        yield Bad(place, found)
        return
    try:
        yield from items_of(found, place)
    except RecursionError:  # what could just be read may be too deep to be written
        yield Bad(place, "nested too deeply")


def object_at(value: dict[str, Any], name: str) -> dict[str, Any]:
    """The object under a name; an empty one where something else stands."""
    found = value.get(name)
    return found if isinstance(found, dict) else {}


def facts(**values: Any) -> dict[str, Any]:
    """Metadata out of what a record says; what is no text, or blank, is left out."""
    return {name: value for name, value in values.items() if isinstance(value, str) and value.strip()}


def _entries(path: Path, offset: int, number: int, is_whole: Callable[[dict[str, Any]], bool]) -> Iterator[_Entry]:
    with opened(path) as file:
        in_lines = _is_in_lines(file.read(SAMPLE_BYTES))
    with opened(path, offset) as file:
        if in_lines:
            for line in lines(file, number):
                settled = line.finished or all(isinstance(found, dict) for found in line.found)
                yield _Entry(line.found, f"line {line.number}", (line.end, line.number) if settled else None)
            return
        for element in elements(file, number, is_whole):
            if isinstance(element, Element):
                yield _Entry([element.value], f"record {element.number}", (element.end, element.number))
            else:
                yield _Entry([element.reason], element.place, None)


def _is_in_lines(head: bytes) -> bool:
    """Whether the first line that is not blank is one object, or is longer than `head`."""
    first, feed, _ = head.strip(b"\x00 \t\r\n\xef\xbb\xbf").partition(b"\n")
    return first.startswith(b"{") and (not feed or first.rstrip(b"\r \x00").endswith(b"}"))
