"""In how many turns a text is said, and how often: by day, by session or in all. Pure.

The text is taken literally, whatever its case: 'STRASSE' finds 'straße'. Letters of half and full width are alike
('ＴＬＳ' and 'TLS', 'ｶﾞ' and 'ガ'), and so are a letter with its accent and the two one after the other.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from producers.errors import UsageError
from producers.storable import storable
from workers.stores.history import Said

By = Literal["day", "session"]
MAX_TEXT_CHARS = 100_000
MAX_GROUPS = 10_000
"""Days or sessions in one answer; so many days are 27 years."""
_DAY_US = 86_400_000_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass
class Number:
    """Of turns that say it, and of the times they do."""

    turns: int = 0
    times: int = 0

    def add(self, times: int) -> None:
        self.turns += 1
        self.times += times


@dataclass(frozen=True)
class Counted:
    """How often a text is said."""

    text: str
    by: By | None
    all: Number = field(default_factory=Number)
    groups: dict[str | None, Number] = field(default_factory=dict)
    """By day in UTC, such as 2026-01-31, or by session; None: turns that have no time."""

    def listed(self) -> list[tuple[str | None, Number]]:
        """At most `MAX_GROUPS` groups: the latest days in order, without a time last; or the sessions with most."""
        if self.by == "day":
            days = sorted((day, number) for day, number in self.groups.items() if day is not None)
            timeless = [(None, self.groups[None])] if None in self.groups else []
            return [*days, *timeless][-MAX_GROUPS:]
        most = sorted(self.groups.items(), key=lambda one: (-one[1].turns, -one[1].times, one[0]))
        return most[:MAX_GROUPS]

    @property
    def left_out(self) -> int:
        """Groups that are not listed."""
        return max(0, len(self.groups) - MAX_GROUPS)

    def as_json(self) -> dict[str, Any]:
        result: dict[str, Any] = {"text": self.text, **vars(self.all)}
        if self.by is not None:
            result |= {"by": self.by, "left_out": self.left_out}
            result["groups"] = [{self.by: name, **vars(number)} for name, number in self.listed()]
        return result


def count(text: str, by: By | None, turns: Iterable[Said]) -> Counted:
    """Look through the turns, holding one at a time. Raises `UsageError` for a text that no turn can say."""
    spoken = Spoken(text)
    counted = Counted(text, by)
    for turn in turns:
        times = spoken.times_in(turn.content)
        if not times:
            continue
        counted.all.add(times)
        if by is not None:
            name = turn.session_id if by == "session" else _day(turn.created_at_us)
            counted.groups.setdefault(name, Number()).add(times)
    return counted


class Spoken:
    """A text that is looked for."""

    def __init__(self, text: str) -> None:
        if not text:
            raise UsageError("text: empty; name what is looked for")
        if len(text) > MAX_TEXT_CHARS:
            raise UsageError(f"text: {len(text):,} characters, over the limit of {MAX_TEXT_CHARS:,}")
        if storable(text) != text:
            raise UsageError("text: holds a NUL or a lone surrogate, which no turn does")
        self._folded = unicodedata.normalize("NFC", _replaced(text.casefold(), _WIDTHS))
        # Only its own letters are brought to one width: for a Chinese text that is none, where all of them take 33 µs.
        self._widths = [pair for pair in _WIDTHS if pair[1] in self._folded]

    def times_in(self, content: str) -> int:
        """How often `content` says it, one beside the other."""
        return unicodedata.normalize("NFC", _replaced(content.casefold(), self._widths)).count(self._folded)


def _replaced(text: str, pairs: Iterable[tuple[str, str]]) -> str:
    for old, new in pairs:
        text = text.replace(old, new)
    return text


def _day(created_at_us: int | None) -> str | None:
    """The day in UTC."""
    if created_at_us is None:
        return None
    return (_EPOCH + timedelta(days=created_at_us // _DAY_US)).date().isoformat()


def _widths() -> list[tuple[str, str]]:
    """(how it is written in half or full width, letter), both as `str.casefold` leaves them, longest first.

    These are Unicode's <wide> and <narrow>, and voiced kana, whose mark half width writes apart.
    """
    marks = {"\uff9e": "\u3099", "\uff9f": "\u309a"}
    found: dict[str, str] = {}
    for code in (0x3000, *range(0xFF01, 0xFFEF)):
        kind, _, plain = unicodedata.decomposition(chr(code)).partition(" ")
        if kind not in ("<wide>", "<narrow>") or chr(code) in marks:
            continue
        letter = chr(int(plain, 16))
        found[chr(code).casefold()] = letter.casefold()
        for half_mark, mark in marks.items():
            voiced = unicodedata.normalize("NFC", letter + mark)
            if kind == "<narrow>" and len(voiced) == 1:
                found[chr(code) + half_mark] = voiced
    return sorted(found.items(), key=lambda pair: -len(pair[0]))


_WIDTHS = _widths()
