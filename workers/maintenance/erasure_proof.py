"""The proof that forgotten content is gone: pieces of it, taken before, are looked for in every file and Redis key.

Does I/O. A piece that what is left says as well proves nothing and is left out. Until the end the pieces are in a
private file in the data dir, so that an interrupted forget can still be proven.
"""

from __future__ import annotations

import json
import os
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import redis

from producers.errors import StoreUnavailable
from producers.keys import Keys
from producers.settings import Settings
from workers.ledger import RANGE_PAGE
from workers.maintenance import byte_search
from workers.stores.terms import search_text

FOLDER = "forgetting"
MAX_TEXTS = 24
"""Contents that pieces are taken of: each is one more pass over all bytes, at some GB a second."""
PIECE_CHARS = 32
SHORTEST_PIECE = 6
SCAN_PAGE = 1000
_PLAIN = re.compile(r'[^"\\\x00-\x1f]+')
"""What JSON leaves as it is, so that a piece looks the same on the stream and in the catalog."""


@dataclass(frozen=True)
class Piece:
    """A piece of forgotten content, as it was said or as the search terms made of it."""

    text: str
    as_terms: bool

    def said_by(self, content: str) -> bool:
        """Whether `content` holds it as well."""
        if not self.as_terms:
            return self.text in content
        longest = max(self.text.split(), key=len)  # most contents are told by one word and need not be cut into terms
        return longest in unicodedata.normalize("NFKC", content) and self.text in search_text(content)

    def encodings(self) -> set[bytes]:
        """Its bytes, also as JSON in ASCII."""
        return {self.text.encode(), self.text.encode("ascii", "backslashreplace")}


@dataclass(frozen=True)
class Search:
    """What was looked through, and where a piece was found."""

    pieces: int
    files: int
    bytes: int
    keys: int
    found: tuple[str, ...]
    """Paths and keys."""


def pieces_of(contents: Iterable[str]) -> list[Piece]:
    """A piece or two of each content, the longest contents first. Pure."""
    pieces: dict[Piece, None] = {}
    for content in sorted(set(contents), key=lambda one: (-len(one), one))[:MAX_TEXTS]:
        longest = max(_PLAIN.findall(content), key=len, default="").strip()
        for text, as_terms in ((longest, False), (search_text(content), True)):
            piece = _around_the_longest_word(text)
            if len(piece) >= SHORTEST_PIECE:
                pieces[Piece(piece, as_terms)] = None
    return list(pieces)


def keep(settings: Settings, number: int, contents: Iterable[str]) -> None:
    """Add contents to the private file of the forget with this number; it is on the disk on return.

    Raises `StoreUnavailable` where it cannot be written.
    """
    folder = settings.data_dir / FOLDER
    try:
        kept = {piece.text: piece for piece in (*(load(settings, number) or ()), *pieces_of(contents))}
        text = json.dumps([[piece.text, piece.as_terms] for piece in kept.values()])
        folder.mkdir(mode=0o700, exist_ok=True)
        path = _path(settings, number)
        descriptor = os.open(_unfinished(path), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with open(descriptor, "w") as file:  # noqa: PTH123
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        _unfinished(path).replace(path)  # a kill leaves the pieces as they were, or as they are now
    except OSError as error:
        raise StoreUnavailable(f"{folder}: {error.strerror}; free space there, or make it writable") from None


def load(settings: Settings, number: int) -> list[Piece] | None:
    """The pieces of this forget; None where it was begun on another machine."""
    try:
        return [Piece(*one) for one in json.loads(_path(settings, number).read_text())]
    except (FileNotFoundError, ValueError):  # a kill can leave half a file
        return None


def discard(settings: Settings, numbers: Iterable[int]) -> None:
    """Overwrite and delete the files of these forgets."""
    for number in numbers:
        path = _path(settings, number)
        for one in (path, _unfinished(path)):
            if one.exists():
                with one.open("r+b") as file:
                    file.write(bytes(one.stat().st_size))
                    file.flush()
                    os.fsync(file.fileno())
                one.unlink()


def _unfinished(path: Path) -> Path:
    return path.with_suffix(".new")


def kept_numbers(settings: Settings) -> set[int]:
    """The forgets that have a file here."""
    return {int(path.stem) for path in (settings.data_dir / FOLDER).glob("*.json") if path.stem.isdigit()}


def distinctive(pieces: Sequence[Piece], remaining: Iterable[str]) -> list[Piece]:
    """The pieces that nothing of what is left says as well. Pure."""
    left = list(pieces)
    for content in remaining:
        if not left:
            break
        left = [piece for piece in left if not piece.said_by(content)]
    return left


def look_for(pieces: Sequence[Piece], settings: Settings, client: redis.Redis | None) -> Search:
    """Search every file of the data dir, those of stores elsewhere on this machine, and every Redis key of ours."""
    needles = sorted({encoding for piece in pieces for encoding in piece.encodings()})
    in_files = byte_search.search(needles, searched_folders(settings), settings.data_dir / FOLDER)
    found, keys = list(in_files.paths), 0
    for key, values in _values(client, settings) if client is not None else ():
        keys += 1
        if any(needle in value for value in values for needle in needles):
            found.append(f"Redis key {key}")
    return Search(len(pieces), in_files.files, in_files.bytes, keys, tuple(found))


def _around_the_longest_word(text: str) -> str:
    """A piece of the text with its longest word, or with the middle of one that is longer than a piece."""
    word = max(re.finditer(r"\S+", text), key=lambda found: len(found.group()), default=None)
    if word is None:
        return ""
    start = max(0, (word.start() + word.end() - PIECE_CHARS) // 2)
    return text[start : start + PIECE_CHARS].strip()


def _path(settings: Settings, number: int) -> Path:
    return settings.data_dir / FOLDER / f"{number}.json"


def searched_folders(settings: Settings) -> set[Path]:
    """The data dir, and where else on this machine a store may be: no byte of what is forgotten may be left there."""
    catalog = settings.catalog_location
    roots = {settings.data_dir, Path(settings.vectors_location)}  # an object store's URI is no folder
    if isinstance(catalog, str) and catalog.startswith("sqlite:///"):
        roots.add(Path(catalog.removeprefix("sqlite:///")).parent)
    return roots


def _values(client: redis.Redis, settings: Settings) -> Iterator[tuple[str, Iterator[bytes]]]:
    server: Any = client
    for key in server.scan_iter(match=f"{Keys(settings.key_prefix).prefix}:*", count=SCAN_PAGE):
        yield key.decode(errors="replace"), _value(server, key)


def _value(server: Any, key: bytes) -> Iterator[bytes]:
    """All that is kept under a key, of whatever type."""
    match server.type(key):
        case b"string":
            yield server.get(key) or b""
        case b"hash":
            for item in server.hscan_iter(key):
                yield b"\n".join(item)
        case b"list":
            yield from server.lrange(key, 0, -1)
        case b"set":
            yield from server.sscan_iter(key)
        case b"zset":
            yield from (member for member, _ in server.zscan_iter(key))
        case b"stream":
            start = "-"
            while page := server.xrange(key, min=start, count=RANGE_PAGE):
                yield from (part for _, fields in page for item in (fields or {}).items() for part in item)
                start = f"({page[-1][0].decode()}"
