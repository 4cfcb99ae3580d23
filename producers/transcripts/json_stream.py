"""Objects of a JSON text of any size: an array of them, one alone, or several in a row. Does I/O.

The standard parser reads each object from a window of the file. Bytes that are no UTF-8 become surrogate escapes, so
that a place in the text is a place in the file. Where the text is damaged, the next object that looks whole is found.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import IO, Any

from producers.transcripts.port import Bad

MAX_OBJECT_CHARS = 12 << 20
"""A longer one is reported and passed over. With four bytes a character, the window and its copy while it grows, and
the objects before and at it, such ones were measured to take 25 bytes a character: just below 300 MB."""
_WINDOW = 1 << 20
_TRIM = 16 << 10
"""The parser counts the lines before each error: of many errors, each shall have few before it."""
_NEAR_END = 16
"""A literal, a number or an escape that the window cuts off is reported at most this far before its end."""
_SURELY_NESTED = 256
"""Levels the parser takes before it gives up; each is one character or more, all of them inside the same element."""
_DECODER = json.JSONDecoder(strict=False)
_BLANKS = 99
_KEY_CHARS = 99
"""Of the beginning of an object, as it is looked for behind damage."""
_OBJECT = re.compile(rf'\{{\s{{0,{_BLANKS}}}"(?:[^"\\]|\\.){{0,{_KEY_CHARS}}}"\s{{0,{_BLANKS}}}:')
_MOST_CHARS = 2 * _BLANKS + 2 * _KEY_CHARS + 4
"""Of what that finds."""
_BETWEEN = re.compile(r"[\s,\]\[\x00\ufeff]*")
_LONG_NUMBER = re.compile(r"\d{4301,}")
"""Python refuses to read such an integer, without saying where it stands."""


@dataclass(frozen=True)
class Element:
    """An object, its number in the file from 1 on, and the byte behind it."""

    value: dict[str, Any]
    number: int
    end: int


def elements(file: IO[bytes], number: int, is_whole: Callable[[dict[str, Any]], bool]) -> Iterator[Element | Bad]:
    """The objects from the file's position on, `number` being that of the last one before it.

    Behind damage, only an object that `is_whole` is taken for one of the file's own, not for a piece of a broken one.
    """
    window = _Window(file)
    damaged = False
    while window.skip(_OBJECT if damaged else _BETWEEN):
        found = window.parse()
        if isinstance(found, dict):
            if damaged and not is_whole(found):
                continue
            damaged = False
            number += 1
            yield Element(found, number, window.offset)
        elif not damaged:
            damaged = True
            number += 1
            yield Bad(f"record {number}, from byte {window.begun:,}", found)


class _Window:
    """A stretch of the file as text; `offset` is the byte at which its unread rest begins."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._text = ""
        self._position = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
        self._at_end = False
        self.offset = file.tell()
        self.begun = self.offset
        """The byte at which the last object that was tried begins."""

    def skip(self, until: re.Pattern[str]) -> bool:
        """Go behind what may stand between objects, or, with `_OBJECT`, to where one may begin; False at the end."""
        while True:
            if until is _BETWEEN:
                found = _BETWEEN.match(self._text, self._position)
                self._advance(found.end() if found else self._position)
                if self._position < len(self._text):
                    return True
            elif found := _OBJECT.search(self._text, self._position):
                self._advance(found.start())
                return True
            else:
                self._advance(
                    len(self._text) - _MOST_CHARS
                )  # the rest of what begins there may come with the next bytes
            if not self._read():
                return False

    def parse(self) -> dict[str, Any] | str:
        """The object at the position, or what is wrong there; either way the position is behind what was read."""
        self.begun = self.offset
        while True:
            if self._position < len(self._text) and self._text[self._position] != "{":
                self._advance(self._position + 1)
                return "not a JSON object"
            try:
                value, end = _DECODER.raw_decode(self._text, self._position)
            except json.JSONDecodeError as error:
                cut = error.msg.startswith("Unterminated string") or error.pos >= len(self._text) - _NEAR_END
                if not cut:
                    # a quote too few or too many hides an opening brace at the end of what was read as text
                    brace = self._text.rfind("{", self._position + 1, error.pos)
                    return self._broken(brace if brace >= 0 else error.pos, "not valid JSON")
                if len(self._text) - self._position > MAX_OBJECT_CHARS:
                    return self._broken(len(self._text), f"longer than {MAX_OBJECT_CHARS >> 20} Mi characters")
                read = error.pos - self._position
                if not self._read():
                    return self._broken(self._position + read, "cut off")
            except ValueError:
                number = _LONG_NUMBER.search(self._text, self._position)
                return self._broken(number.end() if number else self._position, "holds a number too long to read")
            except RecursionError:
                return self._broken(self._position + _SURELY_NESTED, "nested too deeply")
            else:
                self._advance(end)
                return value if isinstance(value, dict) else "not a JSON object"

    def _broken(self, position: int, reason: str) -> str:
        """Up to `position` the text was in order, so that no element of the file's own can begin before it."""
        self._advance(max(self._position + 1, min(position, len(self._text))))
        if self._position > _TRIM:
            self._text, self._position = self._text[self._position :], 0
        return reason

    def _advance(self, position: int) -> None:
        if position > self._position:
            self.offset += len(self._text[self._position : position].encode("utf-8", "surrogateescape"))
            self._position = position

    def _read(self) -> bool:
        """Add to the window, twice what it holds so that a long object is tried a few times only; False at the end."""
        if self._at_end:
            return False
        kept = self._text[self._position :]
        data = self._file.read(max(_WINDOW, min(2 * len(kept), MAX_OBJECT_CHARS - len(kept))))
        self._at_end = not data
        self._text = kept + self._decoder.decode(data, final=self._at_end)
        self._position = 0
        return not self._at_end
