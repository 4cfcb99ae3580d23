"""Records of a JSON file, which holds them as JSON Lines, an array, one object, or several in a row. Does I/O."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from producers.transcripts.json_lines import Position, lines, opened, share
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
    then: Position | None
    """Where to go on; None where the file may be cut off, and what is there is read again once it has grown."""
    share: float


def read_records(
    path: Path,
    state: State | None,
    is_whole: Callable[[dict[str, Any]], bool],
    items_of: Callable[[dict[str, Any], str], Iterator[Item]],
    remembered: Callable[[], State] = dict,
    *,
    always_lines: bool = False,
) -> Iterator[Item]:
    """What `items_of` makes of each record and its place, with `Bad` for what is none, and marks.

    `is_whole`: whether an object is a record, and not a piece of a broken one. `remembered`: what else a mark keeps.
    `always_lines`: the format knows no array.
    """
    then = Position(state["line"], state["offset"]) if state else Position()
    count, marked = 0, then.offset
    for entry in _entries(path, then, is_whole, always_lines=always_lines):
        for found in entry.found:
            for item in _items(found, entry.place, items_of):
                count += 1
                yield item
        if entry.then is None:
            continue
        then = entry.then
        if count >= MARK_ITEMS or then.offset - marked >= MARK_BYTES:
            yield Mark({**then._asdict(), **remembered()}, entry.share)
            count, marked = 0, then.offset
    yield Mark({**then._asdict(), **remembered()}, 1.0)


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


def _entries(
    path: Path, then: Position, is_whole: Callable[[dict[str, Any]], bool], *, always_lines: bool
) -> Iterator[_Entry]:
    with opened(path) as file:
        in_lines = always_lines or _is_in_lines(file.read(SAMPLE_BYTES))
    with opened(path, then.offset) as file:
        if in_lines:
            for line in lines(file, then, is_whole):
                settled = line.then.line == line.number
                yield _Entry(
                    [*line.records, *line.problems], f"line {line.number}", line.then if settled else None, share(file)
                )
            return
        for one in elements(file, then.line, is_whole):
            if isinstance(one, Element):
                yield _Entry([one.value], f"record {one.number}", Position(one.number, one.end), share(file))
            else:
                yield _Entry([one.reason], one.place, None, share(file))


def _is_in_lines(head: bytes) -> bool:
    """Whether the first line that is not blank is one object, or is longer than `head`."""
    first, feed, _ = head.strip(b"\x00 \t\r\n\xef\xbb\xbf").partition(b"\n")
    return first.startswith(b"{") and (not feed or first.rstrip(b"\r \x00").endswith(b"}"))
