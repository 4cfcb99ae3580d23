"""The import of transcript files: what is new gets its place in its session and is sent; the rest is counted. Does I/O.

    read → build → known? → plan (catalog) → append (backfill stream) → sent (catalog), a batch at a time

A turn is known by its origin, which is the same in every copy of a file, so a second run, a resumed copy, a branch or a
compacted tail adds nothing. A kill between two steps repeats at most one batch, with the same identities.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from producers.errors import InvalidEvent, StreamFull
from producers.events import TurnEvent, check_sizes
from producers.settings import Settings
from producers.stream import EventStream
from producers.transcripts.port import Bad, Event, LeftOut, Mark, Reader, ReadOptions, Said, State, Unreadable
from producers.transcripts.text import digest
from workers.backfill.building import Target, adopted, event_of, untimely
from workers.backfill.report import FileReport, Report, shown_path
from workers.backfill.stamps import goes_on, stamp_of
from workers.stores.imports import Imports, Planned

BATCH = 500
"""Turns planned and sent together; the stream's own round trip."""
RECORD_SECONDS = 2.0
"""A mark is recorded at least this often, so that a file with few turns in many bytes is not read again either."""
PROGRESS_SECONDS = 0.1
EXAMPLES = 5
BRINGS_INDEXES = "turns"
"""The format whose turns know their place."""


@dataclass(frozen=True)
class FileToRead:
    """A file, and the reader that its content asks for."""

    path: Path
    reader: Reader


class Importer:
    """Imports files into one target. `on_progress` gets (the report so far, share of the file that is read)."""

    def __init__(
        self,
        settings: Settings,
        imports: Imports,
        target: Target,
        options: ReadOptions,
        *,
        stream: EventStream | None,
        rate: float | None = None,
        again: bool = False,
        on_progress: Callable[[Report, float], None] = lambda report, share: None,
    ) -> None:
        """`stream` None: a dry run, which counts and changes nothing. `rate`: most turns a second.

        `again`: also what was imported before, as the same turns; for what was forgotten since, or dropped.
        """
        self.settings = settings
        self.imports = imports
        self.target = target
        self.options = options
        self.again = again
        self.dry_run = stream is None
        self._on_progress = on_progress
        self._next_progress = 0.0
        self.seen: set[str] = set()
        """Origins, in a dry run only: it plans nothing that could be asked."""
        self.indexes: dict[str, int] = {}
        """Next index by session, likewise."""
        self.report = Report()
        self.share = 0.0
        """Of the file at hand, what is read."""
        self._stream = stream
        self._rate = rate
        self.batch = BATCH if rate is None else max(1, min(BATCH, int(rate)))
        """Turns sent together; of a slow import a second's worth."""
        self._started = time.monotonic()

    def run(self, files: Iterable[FileToRead]) -> Report:
        """Import the files one after the other; what is wrong with one is in its report and does not stop the rest.

        Raises `StreamUnavailable`, `SpoolFull` and `StoreUnavailable`; what was imported before is recorded.
        """
        for one in files:
            report = FileReport(shown_path(one.path), one.reader.name)
            self.report.files.append(report)
            try:
                self._import_file(one, report)
            except Unreadable as error:
                report.unreadable = str(error)
            except OSError as error:
                report.unreadable = error.strerror or type(error).__name__
        return self.report

    def send(self, events: Sequence[TurnEvent]) -> None:
        """Append, however long the backfill stream stays at its high water: old transcripts can wait."""
        assert self._stream is not None
        while True:
            try:
                self._stream.append(events)
                break
            except StreamFull:
                self.show_progress()

    def keep_rate(self) -> None:
        """Wait for as long as what is imported is ahead of the rate."""
        if self._rate is not None:
            time.sleep(max(0.0, self.report.imported / self._rate - (time.monotonic() - self._started)))

    def show_progress(self) -> None:
        """Tell how far it is, a few times a second: the report's sums go over all files."""
        now = time.monotonic()
        if now >= self._next_progress:
            self._next_progress = now + PROGRESS_SECONDS
            self._on_progress(self.report, self.share)

    def _import_file(self, one: FileToRead, report: FileReport) -> None:
        # With what narrows: what one run left out, another that wants it has to read. Turns are known by their origins.
        target = self.target
        # With the format: where another was named for it before, nothing is known of it as what it is.
        narrowed = (target.tenant, target.session_prefix, target.since, target.until, str(self.options))
        key = digest("file", one.reader.name, *narrowed, os.path.realpath(one.path))
        stamp = stamp_of(one.path)
        known = self.imports.progress(key)
        batch, state = 0, None
        if known is not None:
            if known.finished and known.stamp == stamp and not one.reader.in_place and not self.again:
                report.unchanged = True
                report.already_there = known.turns
                report.bad_earlier = known.bad
                return
            batch = known.batch
            if known.batch > known.sent_batch and not self.dry_run:
                self.imports.take_back(key)
            if not self.again and goes_on(one.path, stamp, known, in_place=one.reader.in_place):
                state = known.state
        if known is not None and state is not None:
            report.bad_earlier = known.bad
        if not self.dry_run:
            self.imports.begin(key, shown_path(one.path), one.reader.name, stamp, anew=state is None)
        FileImport(self, one, report, key, batch).run(state)


class FileImport:
    """One file on its way."""

    def __init__(self, importer: Importer, one: FileToRead, report: FileReport, key: str, batch: int) -> None:
        self._importer = importer
        self._one = one
        self._report = report
        self._key = key
        self._batch = batch
        """The last one that was planned."""
        self._pending: dict[str, TurnEvent] = {}
        self._recorded_at = time.monotonic()
        self._bad_recorded = 0

    def run(self, state: State | None) -> None:
        """Read it to its end, from `state` on."""
        self._importer.share = 0.0
        for item in self._one.reader.read(self._one.path, self._importer.options, state):
            match item:
                case Said():
                    self._take(item)
                case Event():
                    self._take_event(item)
                case LeftOut(reason):
                    self._report.left_out[reason] += 1
                case Bad():
                    self._report.add_bad(item)
                case Mark():
                    self._importer.share = item.done
                    late = time.monotonic() - self._recorded_at >= RECORD_SECONDS
                    if late or len(self._pending) >= self._importer.batch // 2:
                        self._flush(item.state)
                    state = item.state
            if len(self._pending) >= self._importer.batch:
                self._flush(None)
            self._importer.show_progress()
        self._flush(state, finished=True)

    def _take(self, said: Said) -> None:
        target = self._importer.target
        event = event_of(said, self._one.reader.name, target, self._importer.settings)
        if isinstance(event, LeftOut):
            self._report.left_out[event.reason] += 1
            return
        # Without the format's name: an export and the database that it was made of are copies of one another.
        self._wait(digest(target.tenant, target.session_prefix, said.origin), event)

    def _take_event(self, item: Event) -> None:
        """One that brings its own identity: the same content under it is the same turn."""
        target, event = self._importer.target, adopted(item.event, self._importer.target)
        reason = untimely(event.created_at, target)
        if reason is not None:
            self._report.left_out[reason] += 1
            return
        try:
            check_sizes(event, self._importer.settings)
        except InvalidEvent as error:
            self._report.add_bad(Bad(item.place, error.without_values))
        else:
            self._wait(digest(event.key, event.content_hash), event)

    def _wait(self, origin: str, event: TurnEvent) -> None:
        if origin in self._pending:
            self._report.already_there += 1
        else:
            self._pending[origin] = event

    def _flush(self, state: State | None, *, finished: bool = False) -> None:
        """Send what is new of what is pending, and record it together with `state`."""
        pending, self._pending = self._pending, {}
        self._recorded_at = time.monotonic()
        old, new = self._sorted_by_age(pending)
        self._report.already_there += len(pending) - len(old) - len(new)
        placed = self._placed(new)
        events = [*old.values(), *(event for _, event in placed)]
        if self._importer.dry_run:
            self._importer.seen.update(pending)
            examples = self._importer.report.examples
            examples += events[: EXAMPLES - len(examples)]
        else:
            self._send(list(old), placed, events, state, finished=finished)
        self._report.imported += len(events)
        self._importer.keep_rate()

    def _send(
        self,
        old: Sequence[str],
        placed: Sequence[tuple[Planned, TurnEvent]],
        events: Sequence[TurnEvent],
        state: State | None,
        *,
        finished: bool,
    ) -> None:
        imports = self._importer.imports
        if events:
            self._batch += 1
            imports.plan(self._key, self._batch, [planned for planned, _ in placed], old)
            self._importer.send(events)
        bad = 0
        if state is not None or finished:  # otherwise what comes next is read once more after a kill
            bad, self._bad_recorded = self._report.bad_count - self._bad_recorded, self._report.bad_count
        imports.sent(self._key, self._batch, turns_sent=len(events), state=state, bad=bad, finished=finished)

    def _sorted_by_age(self, pending: dict[str, TurnEvent]) -> tuple[dict[str, TurnEvent], dict[str, TurnEvent]]:
        """(turns planned before that must be sent again, turns that nobody knows), by origin."""
        again: dict[str, TurnEvent] = {}
        new: dict[str, TurnEvent] = {}
        known = self._importer.imports.known(list(pending))
        for origin, event in pending.items():
            before = known.get(origin)
            if before is None:
                if origin not in self._importer.seen:
                    new[origin] = event
            elif self._importer.again or not before.sent:
                again[origin] = event.model_copy(update={"turn_index": before.turn_index})
        return again, new

    def _placed(self, new: dict[str, TurnEvent]) -> list[tuple[Planned, TurnEvent]]:
        """The new turns with their index in their session, without those that were said live and are stored."""
        if self._one.reader.name == BRINGS_INDEXES:
            return [
                (Planned(origin, digest(event.tenant, event.session_id), event.turn_index), event)
                for origin, event in new.items()
            ]
        source = self._one.reader.name
        sessions = {digest(e.tenant, e.session_id): (e.tenant, e.session_id) for e in new.values()}
        live = {
            key: self._importer.imports.said_live(
                tenant, session, source, [e.content_hash for e in new.values() if e.session_id == session]
            )
            for key, (tenant, session) in sessions.items()
        }
        indexes = self._importer.imports.next_indexes(sessions) | self._importer.indexes
        placed = []
        for origin, event in new.items():
            key = digest(event.tenant, event.session_id)
            if (event.role, event.content_hash) in live[key]:
                self._report.already_there += 1
                continue
            placed.append((Planned(origin, key, indexes[key]), event.model_copy(update={"turn_index": indexes[key]})))
            indexes[key] += 1
        if self._importer.dry_run:
            self._importer.indexes.update(indexes)
        return placed
