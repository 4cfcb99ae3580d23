"""Server-sent events out of bytes, however they are cut (https://html.spec.whatwg.org/multipage/server-sent-events.html).

Pure. Only `data` matters here; comments, which keep a connection alive, and other fields are skipped.
"""

from __future__ import annotations

import codecs

LARGEST_EVENT = 8 << 20
"""Characters of one event; more is not a piece of an answer."""


class SseReader:
    """Feed it bytes as they come; it returns the data of each event that they complete."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._text = ""
        self._data: list[str] = []
        self._size = 0
        self._is_first = True

    def feed(self, data: bytes) -> list[str]:
        """Raises ValueError when an event has no end."""
        return self._read(self._decoder.decode(data))

    def close(self) -> list[str]:
        """The bytes are over; an event that lacks its empty line at the end counts too."""
        events = self._read(self._decoder.decode(b"", final=True), is_last=True)
        return events + self._dispatch()

    def _read(self, text: str, *, is_last: bool = False) -> list[str]:
        self._text += text
        if self._is_first and self._text:
            self._text = self._text.removeprefix("\ufeff")
            self._is_first = False
        *lines, self._text = _split(self._text, is_last=is_last)
        events = []
        for line in lines:
            events += self._take(line)
        if len(self._text) + self._size > LARGEST_EVENT:
            raise ValueError(f"an event of more than {LARGEST_EVENT:,} characters")
        return events

    def _take(self, line: str) -> list[str]:
        if not line:
            return self._dispatch()
        name, _, value = line.partition(":")
        if name == "data":
            self._data.append(value.removeprefix(" "))
            self._size += len(value)
        return []

    def _dispatch(self) -> list[str]:
        data, self._data, self._size = self._data, [], 0
        return ["\n".join(data)] if data else []


def _split(text: str, *, is_last: bool) -> list[str]:
    """Lines that end in CR LF, LF or CR, and what follows the last of them."""
    if text.endswith("\r") and not is_last:  # an LF may follow
        head, held = text[:-1], "\r"
    else:
        head, held = text, ""
    # Not splitlines(): it also splits at U+2028 and others, which stand in JSON as they are.
    lines = head.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    lines[-1] += held
    if is_last and lines[-1]:
        lines.append("")
    return lines
