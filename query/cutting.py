"""Where a text may end when all of it does not fit: after whole sentences, or whole lines of code, tables, lists. Pure.

Fences are those of CommonMark 0.31, 4.5, at any indentation, as the chunker reads them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

import regex

from query.token_estimate import estimate_tokens, prefix_within

ELLIPSIS = "[…]"
"""Stands for what was left out."""
LEAST_TOKENS = 15
"""Below this a cut-off piece says too little to be worth its place: some 60 letters, or 15 Chinese characters."""

_FENCE_LINE = re.compile(r"[ \t]*(`{3,}|~{3,})([^\n]*)")
_TABLE = re.compile(r"\s*\||.*\s\|\s|\s*:?-{2,}:?\s*\|")
_HAN_NUMBER = "[一二三四五六七八九十]{1,3}"
_ITEM = re.compile(
    rf"\s*(?:[-*+•·‣▪◦]\s|#{{1,6}}\s|\(?\d{{1,3}}[.)、．](?!\d)|[（(](?:\d{{1,3}}|{_HAN_NUMBER})[)）]|{_HAN_NUMBER}、)"
)
_CLOSERS = "\"'”’»)\\]）】」』》*_`"
_SENTENCE_END = re.compile(rf"(?:[。！？｡]+|[.!?…]+(?=[{_CLOSERS}]*(?:\s|\Z)))[。！？.!?…]*[{_CLOSERS}]*")
_ABBREVIATION = re.compile(
    r"(?:\b(?:e\.g|i\.e|a\.k\.a|mr|mrs|ms|dr|prof|st|vs|cf|al|fig|eq|sec|no|nr|vol|pp?|approx|incl|resp|etc)"
    r"|(?<![^\W_])[^\W\d_])\.$",
    re.IGNORECASE,
)
_WORD_END = re.compile(r"\s+")
_GRAPHEME = regex.compile(r"\X")

Kind = Literal["prose", "whole", "code", "open", "close"]
"""Of a line: `whole` is one of a table, a list or a heading; `open` and `close` are a fence's marks."""


@dataclass(frozen=True)
class Size:
    """How much a text takes, or how much there is room for."""

    chars: int
    tokens: int | None = None
    """As `estimate_tokens` counts them; None: no bound."""

    def less(self, *texts: str) -> Size:
        """What is left when these are written, each with a line break."""
        chars = self.chars - sum(len(text) + 1 for text in texts)
        if self.tokens is None:
            return Size(chars)
        return Size(chars, self.tokens - sum(estimate_tokens(text) + 1 for text in texts))

    def holds(self, text: str) -> bool:
        return len(text) <= self.chars and (self.tokens is None or estimate_tokens(text) <= self.tokens)


class Line(NamedTuple):
    """A line of the text at [start, end), without its line break."""

    start: int
    end: int
    kind: Kind
    mark: str
    """The mark that closes the fence that is open after this line; empty outside."""


def fit(text: str, room: Size, *, goes_on: bool = False) -> str:
    """`text`, or its first whole sentences or lines that fit, with a mark for what is missing and code fences closed.

    `goes_on`: the text was cut off at its end already. Empty when not even a short piece fits.
    """
    lines = list(lines_of(text))
    mark = lines[-1].mark
    whole = f"{text}\n{mark}" if mark else text
    if not goes_on and room.holds(whole):
        return whole
    longest = max((line.mark for line in lines), key=len)
    left = room.less(ELLIPSIS, longest)
    limit = min(len(text), left.chars)
    if left.tokens is not None:
        limit = prefix_within(text[: max(limit, 0)], left.tokens)
    places = [place for place in _places(text, lines, goes_on) if place.end <= limit]
    best = places[-1] if places else None
    if best is None or estimate_tokens(text[: best.end]) < LEAST_TOKENS:
        best = _within_a_sentence(text, lines, limit)
    if best is None:
        return ""
    kept = text[: best.end].rstrip()
    said = f"{kept}\n{ELLIPSIS}" if best.kind in ("code", "close", "whole") else f"{kept} {ELLIPSIS}"
    return f"{said}\n{best.mark}" if best.mark else said


def lines_of(text: str) -> Iterator[Line]:
    """The lines, each with what it is."""
    start, mark = 0, ""
    for line in text.split("\n"):
        fence = _FENCE_LINE.match(line)
        kind: Kind
        if mark:
            closes = fence is not None and not fence[2].strip() and fence[1].startswith(mark)
            kind, mark = ("close", "") if closes else ("code", mark)
        elif fence is not None and not (fence[1][0] == "`" and "`" in fence[2]):
            kind, mark = "open", fence[1]
        else:  # a line such as ```code``` opens nothing, but would when it is cut
            kind = "whole" if fence or _TABLE.match(line) or _ITEM.match(line) else "prose"
        yield Line(start, start + len(line), kind, mark)
        start += len(line) + 1


def _places(text: str, lines: list[Line], goes_on: bool) -> Iterator[Line]:
    """Places where the text may end, each as the line it cuts short."""
    for index, line in enumerate(lines):
        if line.kind == "prose":
            for found in _SENTENCE_END.finditer(text, line.start, line.end):
                if not _ABBREVIATION.search(text, line.start, found.end()) and _between_characters(text, found.end()):
                    yield line._replace(end=found.end())
        last = index + 1 == len(lines)
        if line.kind == "open" or line.start == line.end or (last and goes_on):
            continue
        # A line of prose that goes on in small letters was only wrapped there.
        if line.kind != "prose" or last or not text[line.end + 1 : line.end + 2].islower():
            yield line


def _within_a_sentence(text: str, lines: list[Line], limit: int) -> Line | None:
    """The last word that fits, where no sentence does; None where that would cut a line of code or of a table."""
    line = next((one for one in lines if one.start <= limit <= one.end), None)
    if line is None or line.kind != "prose":
        return None
    spaces = [found.start() for found in _WORD_END.finditer(text, 0, limit + 1)]
    usable = [space for space in spaces if _between_characters(text, space)]
    end = usable[-1] if usable and usable[-1] > limit // 2 else _last_character(text, line.start, limit)
    return line._replace(end=end) if estimate_tokens(text[:end]) >= LEAST_TOKENS else None


def _between_characters(text: str, at: int) -> bool:
    """Whether nothing at `at` belongs to the character before it: no accent, joiner or variation of it."""
    found = _GRAPHEME.match(text, at - 1)
    return found is None or found.end() <= at


def _last_character(text: str, start: int, limit: int) -> int:
    """End of the last whole character, as a reader sees one, within `limit`."""
    end = start
    for found in _GRAPHEME.finditer(text, start):
        if found.end() > limit:
            break
        end = int(found.end())
    return end
