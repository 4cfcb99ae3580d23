"""The names in the first records of a file, for detection; the sample may be cut off or damaged. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator

from producers.transcripts.port import Sample

MAX_LEVELS = 4
MAX_RECORDS = 20
"""Enough to get past damaged lines, and headers of formats whose first record is of another kind."""
_TOKEN = re.compile(r'"((?:[^"\\\n]|\\.)*)"|[{}\[\]:,]')
"""A text holds no line feed, so that a quote that is missing costs one line."""
_RECORD = re.compile(r"(?:\A|\n)[\s\x00\ufeff\[]*\{|\[\s*\{|\}[\s\x00,]*\{")


def outlines(sample: Sample) -> Iterator[frozenset[str]]:
    """Dotted paths of names of each of the first records, such as `messages.role`; arrays leave no trace in them."""
    text = sample.head.decode("utf-8", "replace")
    position = 0
    for _ in range(MAX_RECORDS):
        found = _RECORD.search(text, position)
        if found is None:
            return
        paths, position = _outline(text, found.end() - 1)
        yield paths


def _outline(text: str, start: int) -> tuple[frozenset[str], int]:
    """The paths of the record that begins at `start`, and where to look for the next one."""
    paths: set[str] = set()
    within: list[str] = []
    name = last = ""
    for token in _TOKEN.finditer(text, start):
        mark = token.group()
        if mark in "{[":
            within.append(name)
            name = ""
        elif mark in "}]":
            within.pop()
            if not within:
                return frozenset(paths), token.start()  # its brace tells a record right behind it
        elif mark == ",":
            name = ""
        elif mark == ":":
            name = last
            path = [part for part in (*within, name) if part]
            if len(path) <= MAX_LEVELS:
                paths.add(".".join(path))
        else:
            last = token.group(1)
    next_line = text.find("\n{", start)
    return frozenset(paths), next_line if next_line >= 0 else len(text)
