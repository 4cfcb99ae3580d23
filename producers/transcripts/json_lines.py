"""Records of a JSON Lines file that a crash may have damaged: what is whole is read, what is not is told. Does I/O.

Seen in real files: a cut record followed by a whole one on the same line, two records on one line, runs of NUL bytes
before or behind a record, blank lines, lone surrogates, a last line that was never finished.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from producers.transcripts.port import Bad, LeftOut

MAX_LINE_BYTES = 64 << 20
"""A longer line is reported and skipped: nobody said that much, and it must not fill the memory."""
_SALVAGE_TRIES = 50
"""Places in a broken line at which a whole record is looked for."""
_DECODER = json.JSONDecoder()


@dataclass(frozen=True)
class Record:
    """A JSON object, the number of its line, and the offset behind that line."""

    value: dict[str, Any]
    line: int
    end: int
    """In bytes of the decompressed file."""


@dataclass(frozen=True)
class Line:
    """What one line holds: objects, and a text for each place that holds none."""

    found: list[dict[str, Any] | str]
    number: int
    end: int
    """In bytes of the decompressed file."""
    finished: bool
    """False for a last line without line feed: more of it may come."""


def records(file: IO[bytes], line: int = 0) -> Iterator[Record | Bad | LeftOut]:
    """The objects from the file's position on, which is behind line number `line`.

    The last line of a file that is being written has no line feed yet: it is read when it is whole and otherwise told.
    """
    for one in lines(file, line):
        for found in one.found:
            yield Record(found, one.number, one.end) if isinstance(found, dict) else _placed(found, one.number)


def lines(file: IO[bytes], number: int = 0) -> Iterator[Line]:
    """The lines from the file's position on, which is behind line `number`; blank ones hold nothing."""
    end = file.tell()
    while data := file.readline(MAX_LINE_BYTES):
        number += 1
        end += len(data)
        finished = data.endswith(b"\n")
        if not finished and len(data) >= MAX_LINE_BYTES:
            end += _skip_line(file)
            yield Line([f"longer than {MAX_LINE_BYTES >> 20} MiB"], number, end, True)
        else:
            yield Line(list(parse_line(data)), number, end, finished)


def parse_line(data: bytes) -> Iterator[dict[str, Any] | str]:
    """The objects on one line; a text for each place that holds none. Pure."""
    text = data.decode("utf-8", "surrogatepass" if _has_no_bad_bytes(data) else "replace")
    stripped = text.replace("\x00", "").strip()
    if "\x00" in text:
        yield "NUL bytes" if stripped else "nothing but NUL bytes"
    if not stripped:
        return
    try:
        whole = json.loads(stripped)
    except (ValueError, RecursionError):
        yield from _salvage(stripped)
        return
    yield whole if isinstance(whole, dict) else "not a JSON object"


@contextmanager
def opened(path: Path, offset: int = 0) -> Iterator[IO[bytes]]:
    """The file at `offset`, decompressed when its name ends in .zst."""
    if path.suffix == ".zst":
        import zstandard

        with path.open("rb") as raw, zstandard.ZstdDecompressor().stream_reader(raw, read_across_frames=True) as stream:
            import io

            buffered = io.BufferedReader(stream)  # type: ignore[arg-type]  # it has what a raw stream needs
            _discard(buffered, offset)
            yield buffered
        return
    with path.open("rb") as file:
        file.seek(offset, os.SEEK_SET)
        yield file


def _salvage(text: str) -> Iterator[dict[str, Any] | str]:
    """Whole records in a line that is none."""
    position = tries = 0
    broken = False
    while (start := text.find("{", position)) >= 0 and tries < _SALVAGE_TRIES:
        tries += 1
        try:
            value, position = _DECODER.raw_decode(text, start)
        except (ValueError, RecursionError):
            broken = True
            position = text.find('{"', start + 1)
            if position < 0:
                break
            continue
        if isinstance(value, dict) and len(value) > 1 and _ends_here(text, position):
            yield value
        else:
            broken = True
    if broken or tries == 0:
        yield "not valid JSON"


def _ends_here(text: str, position: int) -> bool:
    """Whether a record could end there: an object inside a cut record is followed by the rest of that."""
    rest = text[position:].lstrip()
    return not rest or rest.startswith("{")


def _placed(what: str, line: int) -> Bad | LeftOut:
    return Bad(f"line {line}", what)


def _has_no_bad_bytes(data: bytes) -> bool:
    try:
        data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return False
    return True


def _skip_line(file: IO[bytes]) -> int:
    """Read to the end of a line that is too long; returns how many bytes that was."""
    skipped = 0
    while data := file.readline(1 << 20):
        skipped += len(data)
        if data.endswith(b"\n"):
            break
    return skipped


def _discard(file: IO[bytes], count: int) -> None:
    while count > 0:
        data = file.read(min(count, 1 << 20))
        if not data:
            return
        count -= len(data)
