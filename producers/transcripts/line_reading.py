"""One pass over a JSON Lines transcript, with a mark each few hundred items. Does I/O."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from producers.transcripts.json_lines import IsRecord, Line, Position, lines, opened, share
from producers.transcripts.port import Item, Mark, State

ITEMS_PER_MARK = 300
LINES_PER_MARK = 2000
"""A mark comes after so many items or lines, whichever is first."""


class Reading(Protocol):
    """What a format makes of the lines, and what it remembers of those that came before."""

    begin: Position

    def line(self, line: Line) -> Iterator[Item]:
        """What the line says; of its problems, too."""
        ...

    def finish(self) -> Iterator[Item]:
        """What is still held when there are no more lines."""
        ...

    def state(self, then: Position) -> State:
        """From which another reading goes on at `then`."""
        ...


def read_lines(path: Path, reading: Reading, is_record: IsRecord) -> Iterator[Item]:
    """The file's items from where `reading` begins, with marks, the last one at its end."""
    then, items, count = reading.begin, 0, 0
    with opened(path, then.offset) as file:
        for line in lines(file, then, is_record):
            for item in reading.line(line):
                items += 1
                yield item
            then, count = line.then, count + 1
            if items >= ITEMS_PER_MARK or count >= LINES_PER_MARK:
                items = count = 0
                yield Mark(reading.state(then), share(file))
    yield from reading.finish()
    yield Mark(reading.state(then), 1.0)


def begin_of(state: State) -> Position:
    """Where a state that has `line` and `offset` goes on; the file's start for an empty one."""
    return Position(state.get("line", 0), state.get("offset", 0))
