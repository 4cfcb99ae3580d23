"""The turns around each hit, for the context block: fetched in the question's scope, merged where they touch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

from producers.events import from_utc_microseconds
from workers.stores.catalog import Catalog
from workers.stores.history import SPEAKS
from workers.stores.placed_turns import Place, PlacedTurn
from workers.stores.scope import Scope

SHOWN_CHARS = 1000
"""Characters at most of a turn beside a hit: enough for the question that a hit answers; long output is cut."""


class Recalled(Protocol):
    """What the block shows of a turn, or of the part of it that was found."""

    @property
    def session_id(self) -> str: ...
    @property
    def turn_index(self) -> int: ...
    @property
    def role(self) -> str: ...
    @property
    def speaker(self) -> str | None: ...
    @property
    def created_at(self) -> datetime | None: ...
    @property
    def content(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def language(self) -> str | None: ...
    @property
    def chunk_index(self) -> int: ...
    @property
    def total_chunks(self) -> int: ...


@dataclass(frozen=True)
class Neighbour:
    """A turn beside a hit, or its beginning."""

    session_id: str
    turn_index: int
    role: str
    speaker: str | None
    created_at: datetime | None
    content: str
    chars: int
    """Length of the whole turn in characters."""
    kind: str = field(default="prose", init=False)
    language: str | None = field(default=None, init=False)
    chunk_index: int = field(default=0, init=False)
    total_chunks: int = field(default=1, init=False)

    @property
    def cut(self) -> bool:
        return len(self.content) < self.chars

    def as_json(self) -> dict[str, Any]:
        said = self.created_at.isoformat() if self.created_at else None
        return {
            "session_id": self.session_id,
            "turn_index": self.turn_index,
            "role": self.role,
            "speaker": self.speaker,
            "created_at": said,
            "content": self.content,
            "chars": self.chars,
        }


@dataclass(frozen=True)
class Entry:
    """A turn of the block; `number` is its place among the hits, from 1, or None beside them."""

    turn: Recalled
    number: int | None = None


@dataclass(frozen=True)
class Passage:
    """Turns that stand together, in the order in which they were said."""

    entries: tuple[Entry, ...]

    @property
    def best(self) -> int:
        """The number of its best hit."""
        return min(entry.number for entry in self.entries if entry.number is not None)


def neighbours_of(catalog: Catalog, hits: Sequence[Recalled], scope: Scope, reach: int) -> list[Neighbour]:
    """The turns up to `reach` before and after each hit that `scope` may see, without the hits; in order of place."""
    if not reach or not hits:
        return []
    places = {(hit.session_id, index) for hit in hits for index in _window(hit, reach)}
    known = {(hit.session_id, hit.turn_index, hit.role) for hit in hits}
    found = catalog.turns_at(places, scope, SHOWN_CHARS)
    return [_neighbour(one) for one in found if (*one.place, one.turn.role) not in known]


def passages(hits: Sequence[Recalled], around: Sequence[Neighbour], reach: int) -> list[Passage]:
    """The hits with what is around them, best first. Windows that touch are one passage; without `reach` none do."""
    entries = [Entry(hit, number) for number, hit in enumerate(hits, 1)]
    if not reach:
        return [Passage((entry,)) for entry in entries]
    group_of: dict[Place, int] = {}
    groups: list[list[Entry]] = []
    for entry in sorted(entries, key=lambda one: (one.turn.session_id, one.turn.turn_index)):
        session, window = entry.turn.session_id, _window(entry.turn, reach)
        touched = group_of.get((session, window[0] - 1), group_of.get((session, window[0])))
        if touched is None:
            touched = len(groups)
            groups.append([])
        groups[touched].append(entry)
        group_of.update({(session, index): touched for index in window})
    for turn in around:
        groups[group_of[turn.session_id, turn.turn_index]].append(Entry(turn))
    return sorted((Passage(_in_order(group)) for group in groups), key=lambda one: one.best)


def _window(hit: Recalled, reach: int) -> range:
    return range(max(0, hit.turn_index - reach), hit.turn_index + reach + 1)


def _in_order(entries: Iterable[Entry]) -> tuple[Entry, ...]:
    """By index; turns that share one in the order in which roles speak."""
    return tuple(sorted(entries, key=lambda one: (one.turn.turn_index, SPEAKS.index(one.turn.role))))


def _neighbour(placed: PlacedTurn) -> Neighbour:
    turn = placed.turn
    said = from_utc_microseconds(turn.created_at_us)
    return Neighbour(turn.session_id, placed.turn_index, turn.role, placed.speaker, said, placed.text, placed.chars)
