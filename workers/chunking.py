"""Cuts a turn into chunks that the embedder can read whole, without losing a character of it. Pure.

A text is blocks: paragraphs, and code fences (CommonMark 0.31, 4.5, at any indentation). Neighbouring paragraphs share
a chunk while they fit; a fence has a chunk of its own, so that neither its prose nor its code is diluted by the other
(recall was no worse than with shared chunks on labelled agent sessions, and the language stays exact). A block that
does not fit is cut by semantic-text-splitter, which prefers line ends, then sentence ends (Unicode's, so also 。！？,
and here ；…), then words, then characters.
"""

from __future__ import annotations

import itertools
import re
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

from producers.errors import SettingsError
from workers.embedding.text import readable

Kind = Literal["prose", "code"]

CHARS_PER_TOKEN_LIMIT = 16
"""A chunk is also held to this many characters a token: WordPiece reads a megabyte without a space as one unknown
token, and one of line breaks as none."""
MAX_LANGUAGE_CHARS = 32
"""What is longer than this after a fence's mark is no language."""
WINDOW_CHUNKS = 4
"""Chunks at least that the splitter sees at once: its time grows with the square of a text without punctuation."""
_FENCE_SHARE = 2
"""A fence's two marks may take up 1/2 of a chunk; beyond that they are cut like the code."""

_FENCE_LINE = re.compile(r"^[ \t]*(`{3,}|~{3,})([^\n]*)$", re.MULTILINE)
_PARAGRAPH_BREAK = re.compile(r"\n\s*\n")


@dataclass(frozen=True)
class Chunk:
    """A piece of a turn: `text == content[start:end].strip()`, offsets in characters; the spans cover the whole turn.

    `kind` is "code" for a fence or a part of one; `language` is what the fence says, in lower case.
    """

    index: int
    total: int
    start: int
    end: int
    text: str
    kind: Kind
    language: str | None


class _Block(NamedTuple):
    """A span that a chunk should hold whole. A fence's `body` lies between its two marks."""

    start: int
    end: int
    kind: Kind = "prose"
    language: str | None = None
    body: tuple[int, int] = (0, 0)


class Chunker:
    """Chunks of at most `max_tokens` tokens as `count_tokens` counts them.

    `overlap` is how many tokens at most two neighbouring pieces of one paragraph share; code and whole blocks share
    none.
    """

    def __init__(self, count_tokens: Callable[[str], int], max_tokens: int, overlap: int = 0) -> None:
        from semantic_text_splitter import TextSplitter

        if overlap >= max_tokens:
            raise SettingsError(f"chunk_overlap {overlap} must be below chunk_tokens {max_tokens}")
        self.max_tokens = max_tokens
        self.overlap = overlap
        self._count = count_tokens
        self._splitter = TextSplitter.from_callback

    def chunk(self, content: str) -> list[Chunk]:
        """The chunks in order; together their spans hold every character of `content`. Blank: none."""
        # One character stays one, so that offsets into the readable text are offsets into the content.
        text = readable(content)
        pieces = list(self._spans(text))
        # White space between two pieces goes with the first of them, at the very start with the one that follows.
        starts = [start if index else 0 for index, (start, *_) in enumerate(pieces)]
        following = [*starts[1:], len(content)]
        return [
            Chunk(index, len(pieces), starts[index], max(end, following[index]), content[start:end], kind, language)
            for index, (start, end, kind, language) in enumerate(pieces)
        ]

    def _spans(self, text: str) -> Iterator[tuple[int, int, Kind, str | None]]:
        """Start, end, kind and language of every chunk."""
        for kind, group in itertools.groupby(_blocks(text), key=lambda block: block.kind):
            blocks = list(group)
            at = 0
            while at < len(blocks):
                block, after = blocks[at], at + 1
                if not self._fits(text, block.start, block.end):
                    for start, end in self._cut(text, block):
                        yield start, end, kind, block.language
                else:
                    if kind == "prose":
                        after = self._longest_run(text, blocks, at)
                    yield block.start, blocks[after - 1].end, kind, block.language
                at = after

    def _longest_run(self, text: str, blocks: list[_Block], at: int) -> int:
        """Index after the last of the paragraphs from `at` on that fit together; doubling, then bisection."""
        start, fitting, step = blocks[at].start, at + 1, 1
        while fitting + step <= len(blocks) and self._fits(text, start, blocks[fitting + step - 1].end):
            fitting += step
            step *= 2
        failing = min(fitting + step, len(blocks) + 1)
        while failing - fitting > 1:
            middle = (fitting + failing) // 2
            if self._fits(text, start, blocks[middle - 1].end):
                fitting = middle
            else:
                failing = middle
        return fitting

    def _cut(self, text: str, block: _Block) -> Iterator[tuple[int, int]]:
        """Spans of a block that is too large for one chunk."""
        if block.kind == "prose":
            yield from self._split(text, block.start, block.end, self.max_tokens, self.overlap)
            return
        start, end = block.body
        marks = self._size(text[block.start : start]) + self._size(text[end : block.end])
        if marks * _FENCE_SHARE > self.max_tokens:
            yield from self._split(text, block.start, block.end, self.max_tokens, 0)
            return
        # The marks go with the first and the last piece of the code, which is cut smaller to leave room for them.
        pieces = list(self._split(text, start, end, self.max_tokens - marks, 0))
        if pieces and self._fits(text, block.start, pieces[0][1]):
            pieces[0] = (block.start, pieces[0][1])
        else:
            pieces.insert(0, (block.start, start))
        if end < block.end and self._fits(text, pieces[-1][0], block.end):
            pieces[-1] = (pieces[-1][0], block.end)
        elif end < block.end:
            pieces.append((end, block.end))
        yield from filter(None, (_trim(text, *piece) for piece in pieces))

    def _split(self, text: str, start: int, end: int, limit: int, overlap: int) -> Iterator[tuple[int, int]]:
        """Spans of at most `limit` tokens, white space left out between them."""
        splitter = self._splitter(self._size, limit, overlap=overlap)
        window = WINDOW_CHUNKS * limit * CHARS_PER_TOKEN_LIMIT
        while start < end:
            stop = min(start + window, end)
            original = text[start:stop]
            pieces = splitter.chunk_indices(_with_full_stops(original))
            if stop < end and len(pieces) > 1:
                stop = start + pieces.pop()[0]  # the window cut the last piece short: the next one begins with it
            for offset, seen in pieces:
                piece = original[offset : offset + len(seen)]
                if piece == seen or self._size(piece) <= limit:
                    parts = [(offset, piece)]
                else:  # the marks as written are more tokens than the full stops that stood for them
                    parts = [(offset + at, part) for at, part in splitter.chunk_indices(piece)]
                spans = (_trim(text, start + at, start + at + len(part)) for at, part in parts)
                yield from filter(None, spans)
            start = stop

    def _fits(self, text: str, start: int, end: int) -> bool:
        """Whether a span fits; tells without a tokenizer where it can."""
        if end - start > self.max_tokens * CHARS_PER_TOKEN_LIMIT:
            return False
        piece = text[start:end]
        return _most_tokens(piece) <= self.max_tokens or self._size(piece) <= self.max_tokens

    def _size(self, piece: str) -> int:
        """Tokens of a piece, or its characters by `CHARS_PER_TOKEN_LIMIT` where that is more."""
        floor = -(-len(piece) // CHARS_PER_TOKEN_LIMIT)
        return floor if floor > self.max_tokens else max(floor, self._count(piece))


def _most_tokens(piece: str) -> int:
    """A bound that costs no tokenizer: a token is at least one byte of the text, and one more may open it.

    The text is what the tokenizer makes of it first, so the longest of the forms counts: U+FDFA is 3 bytes as written
    and 33 in NFKD. Checked over all of Unicode for WordPiece and SentencePiece.
    """
    if piece.isascii():
        return len(piece) + 1
    forms = (piece, unicodedata.normalize("NFD", piece), unicodedata.normalize("NFKD", piece))
    return max(len(form.encode()) for form in forms) + 1


def _with_full_stops(text: str) -> str:
    """`text` with a full stop for each mark that ends a clause in Chinese and Japanese but no sentence in Unicode."""
    return text.replace("；", "。").replace("…", "。")


def _blocks(text: str) -> Iterator[_Block]:
    """Paragraphs and fences, in order."""
    at = 0
    for fence in _fences(text):
        yield from _paragraphs(text, at, fence.start)
        yield fence
        at = fence.end
    yield from _paragraphs(text, at, len(text))


def _fences(text: str) -> Iterator[_Block]:
    """Code fences. One that is never closed runs to the end, as in CommonMark: transcripts are often cut short."""
    if "```" not in text and "~~~" not in text:
        return
    opening: re.Match[str] | None = None
    for line in _FENCE_LINE.finditer(text):
        mark, info = line.group(1), line.group(2).strip()
        if opening is None:
            if not (mark[0] == "`" and "`" in info):  # that would be code within a line
                opening = line
        elif not info and mark.startswith(opening.group(1)):
            yield _fence(opening, line.start(), line.end(1))
            opening = None
    if opening is not None:
        end = len(text.rstrip())
        yield _fence(opening, end, end)


def _fence(opening: re.Match[str], body_end: int, end: int) -> _Block:
    words = opening.group(2).split()
    language = words[0].strip("{}.").lower() if words else ""
    known = language if 0 < len(language) <= MAX_LANGUAGE_CHARS else None
    return _Block(opening.start(1), end, "code", known, (min(opening.end(), end), body_end))


def _paragraphs(text: str, start: int, end: int) -> Iterator[_Block]:
    at = start
    breaks = [(found.start(), found.end()) for found in _PARAGRAPH_BREAK.finditer(text, start, end)]
    for stop, resume in [*breaks, (end, end)]:
        span = _trim(text, at, stop)
        if span is not None:
            yield _Block(*span)
        at = resume


def _trim(text: str, start: int, end: int) -> tuple[int, int] | None:
    """The span without white space at its ends; None when it is blank."""
    piece = text[start:end]
    left = len(piece) - len(piece.lstrip())
    right = len(piece.rstrip())
    return (start + left, start + right) if left < right else None
