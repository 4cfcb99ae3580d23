"""An import of transcripts in a format of the tests' own, over a real catalog and a real stream."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from producers.connection import connect
from producers.events import TurnEvent, parse_event
from producers.keys import EVENT_FIELD, Keys
from producers.settings import Settings
from producers.stream import EventStream
from producers.transcripts.port import Bad, Item, LeftOut, Mark, Reader, ReadOptions, Said, Sample, State, Unreadable
from workers.backfill.building import Target
from workers.backfill.importer import FileToRead, Importer
from workers.backfill.report import Report
from workers.stores.catalog import Catalog


class Lines:
    """A format of the test's own: `session|role|origin|content` a line, with a mark behind each."""

    name = "lines"
    in_place = False

    def recognises(self, sample: Sample) -> bool:
        return True

    def read(self, path: Path, options: ReadOptions, state: State | None) -> Iterator[Item]:
        offset = state["offset"] if state else 0
        data = path.read_bytes()
        for number, line in enumerate(data[offset:].splitlines(keepends=True), 1):
            offset += len(line)
            parts = line.decode().strip().split("|")
            if parts == ["refused"]:
                raise Unreadable("it says so")
            if len(parts) == 4:
                yield Said(parts[0], parts[1], parts[3], parts[2], f"line {number}")  # type: ignore[arg-type]
            else:
                yield LeftOut("comment") if parts[0].startswith("#") else Bad(f"line {number}", "not four fields")
            yield Mark({"offset": offset}, offset / len(data))


def lines(numbers: range, session: str = "s") -> str:
    return "".join(f"{session}|{'user' if n % 2 == 0 else 'assistant'}|o{n}|turn {n}\n" for n in numbers)


def run(settings: Settings, catalog: Catalog, *paths: Path, **options: Any) -> Report:
    target = options.pop("target", Target("t"))
    reader: Reader = options.pop("reader", Lines())
    with EventStream(settings, "backfill") as stream:
        importer = Importer(settings, catalog.imports, target, ReadOptions(), stream=stream, **options)
        return importer.run([FileToRead(path, reader) for path in paths])


def sent(settings: Settings) -> list[TurnEvent]:
    """What is on the backfill stream, in order."""
    with connect(settings) as client:
        rows = client.xrange(Keys(settings.key_prefix).stream("backfill"))
    return [parse_event(fields[EVENT_FIELD], settings) for _, fields in rows]


def identities(settings: Settings) -> list[tuple[str, int, str, str]]:
    return [(e.session_id, e.turn_index, e.role, e.content) for e in sent(settings)]


TEN = [("s", n, "user" if n % 2 == 0 else "assistant", f"turn {n}") for n in range(10)]
