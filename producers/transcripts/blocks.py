"""What messages of all agents have in common: prose out of blocks, and injected context out of prose. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

from producers.transcripts.port import ReadOptions
from producers.transcripts.text import THINKING_MARKER, joined

RECALLED = "recalled-memory"
"""The element in which this product hands recalled turns to an agent; what it holds was said elsewhere."""


def blocks(content: Any) -> list[dict[str, Any]]:
    """A message's content as blocks: a text is one text block, and what is neither block nor text is left out."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    if not isinstance(content, list):
        return []
    found = ({"type": "text", "text": block} if isinstance(block, str) else block for block in content)
    return [block for block in found if isinstance(block, dict)]


def without_elements(text: str, names: Sequence[str]) -> tuple[str, int]:
    """The text without `<name>…</name>` elements, and how many there were. Linear in the text.

    An element that never ends is kept, unless the text begins with it: then all of it is one.
    """
    kept: list[str] = []
    position = count = 0
    endless: set[str] = set()
    for opening in _opening(tuple(names)).finditer(text):
        name = opening[1]
        if opening.start() < position or name in endless:
            continue
        end = text.find(f"</{name}>", opening.end())
        if end < 0:
            endless.add(name)
            if not "".join([*kept, text[position : opening.start()]]).strip():
                return "", count + 1
            continue
        kept.append(text[position : opening.start()])
        position = end + len(f"</{name}>")
        count += 1
    return ("".join([*kept, text[position:]]).strip("\n"), count) if count else (text, 0)


class Prose:
    """The prose of one message, piece by piece in the message's order."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._pieces: list[str | None] = []
        """None where thinking is left out."""
        self.is_said = False
        """It holds more than thinking."""

    def add(self, text: str) -> None:
        if text.strip():
            self._pieces.append(text)
            self.is_said = True

    def think(self, text: str) -> bool:
        """Thinking at this place; True when it is left out."""
        kept = self._options.thinking and bool(text.strip())
        self._pieces.append(text if kept else None)
        return not kept

    def __bool__(self) -> bool:
        return any(self._pieces)

    def text(self) -> str:
        """The paragraphs, with a marker for thinking that is left out between two of them."""
        return joined(_marked(self._pieces))


def _marked(pieces: Iterable[str | None]) -> Iterable[str]:
    said = pending = False
    for piece in pieces:
        if piece is None:
            pending = said
            continue
        if pending:
            yield THINKING_MARKER
        yield piece
        said, pending = True, False


@lru_cache
def _opening(names: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile(rf"<({'|'.join(map(re.escape, names))})(?=[\s>])[^<>]*>")
