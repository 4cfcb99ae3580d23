"""Records of a JSON Lines file that a crash may have damaged: what is whole is read, what is not is told. Does I/O.

Seen in real files: a cut record followed by a whole one on the same line, two records on one line, runs of NUL bytes
before or behind a record, blank lines, lone surrogates, a last line that was never finished.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NamedTuple

from producers.transcripts.port import Bad, Unreadable

MAX_LINE_BYTES = 16 << 20
"""A longer line is reported and skipped: nobody said that much. Text, characters and values of one take 9 times this
at worst, which stays well below what a reader may use.
"""
_SALVAGE_TRIES = 2000
"""Places in a broken line at which a whole record is looked for."""
_SALVAGE_SCANS = 8
"""How often a broken line may be scanned in all, so that one of many megabytes and levels ends."""
_BEFORE_A_VALUE = (":", ",", "[")
_CHUNK = 1 << 20
_COMPRESSED_CHUNK = 1 << 10
"""Of zeros, that becomes 32 MiB."""
_DECODER = json.JSONDecoder()

IsRecord = Callable[[dict[str, Any]], bool]


class Position(NamedTuple):
    """Where to go on: the number of the last line that is done with, and the offset behind it.

    The offset is in bytes of the decompressed file.
    """

    line: int = 0
    offset: int = 0


@dataclass(frozen=True)
class Line:
    """What one line holds: mostly one record, none when it is blank."""

    number: int
    start: int
    records: list[dict[str, Any]]
    problems: list[str]
    then: Position
    """Behind the line; before it while its end has not been written, as it may become whole."""

    def bad(self) -> Iterator[Bad]:
        for problem in self.problems:
            yield Bad(f"line {self.number}", problem)


@dataclass(frozen=True)
class Record:
    """A JSON object, the number of its line, and the offset behind that line."""

    value: dict[str, Any]
    line: int
    end: int
    """In bytes of the decompressed file."""


def lines(file: IO[bytes], position: Position, is_record: IsRecord | None = None) -> Iterator[Line]:
    """The lines from `position` on, at which `file` stands; for `is_record` see `parse_line`."""
    then = position
    number, start = position
    while data := file.readline(MAX_LINE_BYTES):
        number += 1
        end = start + len(data)
        if data.endswith(b"\n"):
            records, problems = parse_line(data, is_record)
            then = Position(number, end)
        elif len(data) >= MAX_LINE_BYTES:
            end += _skip_line(file)
            records, problems = [], [f"longer than {MAX_LINE_BYTES >> 20} MiB"]
            then = Position(number, end)
        else:  # the last line: the line feed, or the rest of it, may come later and belongs to the same line
            records, problems = parse_line(data, is_record)
            then = Position(number - 1, start if problems else end)
        yield Line(number, start, records, problems, then)
        start = end
    if is_damaged(file):  # a cut file may come whole later: then a line that was cut is read from its beginning
        yield Line(number + 1, start, [], ["the compressed data is damaged from here on"], then)


def records(file: IO[bytes], line: int, offset: int) -> Iterator[Record | Bad]:
    """The objects from `offset` on, at which `file` stands, behind line number `line`."""
    for found in lines(file, Position(line, offset)):
        for value in found.records:
            yield Record(value, found.then.line, found.then.offset)
        yield from found.bad()


def parse_line(data: bytes, is_record: IsRecord | None = None) -> tuple[list[dict[str, Any]], list[str]]:
    """The objects on one line, and what is wrong with it. Pure.

    In a broken line an object can be a whole record or a part of the cut one: `is_record` tells; without it, one that
    stands where a value stands is taken for a part.
    """
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = _decode_damaged(data)
    has_nul = "\x00" in text
    text = text.replace("\x00", "").strip().removeprefix("\ufeff")
    if not text:
        return [], ["nothing but NUL bytes"] if has_nul else []
    dropped = ["NUL bytes dropped"] if has_nul else []
    try:
        whole = json.loads(text)
    except (ValueError, RecursionError):
        found, problem = _salvage(text, is_record)
        return found, [*dropped, problem]
    if not isinstance(whole, dict):
        return [], [*dropped, "not a JSON object"]
    return [whole], ["NUL bytes dropped, the record is read"] if has_nul else []


@contextmanager
def opened(path: Path, offset: int = 0) -> Iterator[IO[bytes]]:
    """The file at `offset`, decompressed when its name ends in .zst."""
    with path.open("rb") as file:
        if path.suffix == ".zst":
            with io.BufferedReader(_Decompressed(file), _CHUNK) as stream:
                _discard(stream, offset)
                yield stream
        else:
            file.seek(offset, os.SEEK_SET)
            yield file


def share(file: IO[bytes]) -> float:
    """How much of an opened file is read, from 0 to 1."""
    raw = getattr(file, "raw", None)
    source = raw.source if isinstance(raw, _Decompressed) else file
    size = os.fstat(source.fileno()).st_size
    return min(1.0, source.tell() / size) if size else 1.0


def is_damaged(file: IO[bytes]) -> bool:
    """Whether an opened file was read to where its compressed data is damaged or cut."""
    raw = getattr(file, "raw", None)
    return isinstance(raw, _Decompressed) and raw.damaged


class _Decompressed(io.RawIOBase):
    """A zstd file as a raw stream that ends, with a note, where the data is damaged or cut."""

    def __init__(self, source: IO[bytes]) -> None:
        try:
            import zstandard
        except ImportError:
            raise Unreadable("is compressed with zstd; `pip install zstandard` reads it") from None
        self.source = source
        self.damaged = False
        self._error = zstandard.ZstdError
        self._new_frame = zstandard.ZstdDecompressor().decompressobj
        self._frame: Any = None
        """The one that is read; None between two."""
        self._ready = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._ready and not self.damaged:
            data = self.source.read(_COMPRESSED_CHUNK)
            if not data:
                self.damaged = self._frame is not None
                break
            self._ready = memoryview(self._decompress(data))
        count = min(len(buffer), len(self._ready))
        buffer[:count], self._ready = self._ready[:count], self._ready[count:]
        return count

    def _decompress(self, data: bytes) -> bytes:
        found = b""
        try:
            while data:
                self._frame = self._frame or self._new_frame()
                found += self._frame.decompress(data)
                data = self._frame.unused_data if self._frame.eof else b""
                if self._frame.eof:
                    self._frame = None
        except self._error:
            self.damaged = True
        return found


def _salvage(text: str, is_record: IsRecord | None) -> tuple[list[dict[str, Any]], str]:
    """Whole records in a line that is not one, and what it is."""
    found: list[dict[str, Any]] = []
    budget = _SALVAGE_SCANS * len(text)
    start, end = text.find("{"), 0
    broken = start != 0
    for _ in range(_SALVAGE_TRIES):
        if start < 0 or budget < 0:
            break
        try:
            value, after = _DECODER.raw_decode(text, start)
        except (ValueError, RecursionError) as error:
            broken = True
            budget -= getattr(error, "pos", len(text)) - start
            start = text.find('{"', start + 1)
            continue
        if is_record(value) if is_record else text[max(0, start - 8) : start].rstrip()[-1:] not in _BEFORE_A_VALUE:
            found.append(value)
        broken = broken or bool(text[end:start].strip())
        budget -= after - start
        start, end = text.find("{", after), after
    return found, "not valid JSON" if broken or text[end:].strip() else "several records on one line"


def _decode_damaged(data: bytes) -> str:
    """Lone surrogates as they are, what is no text as replacement characters."""
    try:
        return data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return data.decode("utf-8", "replace")


def _skip_line(file: IO[bytes]) -> int:
    """Read to the end of a line that is too long; returns how many bytes that was."""
    skipped = 0
    while data := file.readline(_CHUNK):
        skipped += len(data)
        if data.endswith(b"\n"):
            break
    return skipped


def _discard(file: IO[bytes], count: int) -> None:
    while count > 0 and (data := file.read(min(count, _CHUNK))):
        count -= len(data)
