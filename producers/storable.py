"""Texts of others made such as every store takes them: ids, and what a turn says. Pure."""

from __future__ import annotations

import re

from producers.events import MAX_ID_CHARS
from producers.transcripts.text import digest

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
_CONTROL = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")


def storable(text: str) -> str:
    """The text with a replacement character for each NUL and lone surrogate."""
    return _UNSTORABLE.sub(REPLACEMENT, text)


def within(text: str, limit: int) -> str:
    """The same, cut to `limit` bytes of UTF-8 with a note of how much is left out."""
    clean = storable(text)
    size = len(clean.encode())
    if size <= limit:
        return clean
    note = f"\n[{size - limit:,} bytes and more left out]"
    return clean.encode()[: max(1, limit - len(note) - 3)].decode(errors="ignore") + note


def identifier(text: str) -> str:
    """An id that the stream takes; one that is too long keeps its beginning and gets a digest."""
    clean = _CONTROL.sub(REPLACEMENT, text)
    if len(clean) <= MAX_ID_CHARS:
        return clean or REPLACEMENT
    mark = digest(text)
    return f"{clean[: MAX_ID_CHARS - len(mark) - 1]}-{mark}"
