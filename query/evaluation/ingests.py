"""The ingest that questions are asked over: made through the real pipeline, or kept from an earlier run. Does I/O.

A kept folder is a data dir like any other, with a note of which turns it holds and which settings made its vectors.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from producers.errors import NotReady, UsageError
from producers.events import TurnEvent
from producers.settings import Settings, shown
from producers.terminal import Terminal
from query.evaluation.in_child import in_child
from query.evaluation.variants import STORED_WITH
from query.scratch import push_and_drain, quiet_logs, running_system, scratch_settings
from workers.status import gather_status
from workers.stores.catalog import Catalog

NOTE = "eval.json"
NOTE_FORMAT = 1
DRAIN_TIMEOUT = 7200.0
NO_SERVERS = {"redis_url": None, "catalog_url": None, "vectors_uri": None}
"""The stores are those of the folder, whatever the settings name elsewhere."""


@dataclass(frozen=True)
class Note:
    """What a kept folder says of itself."""

    format: int
    events: int
    digest: str
    """Of the events, with the tenants that the questions put them under."""
    stored_with: dict[str, Any]
    """Setting → value, of those that make vectors."""
    scripts: list[str] | None
    """Writing systems that the embedder speaks; None means all."""
    turns: int
    chunks: int
    advice: list[str]


@dataclass(frozen=True)
class Ingest:
    """Stored turns to ask."""

    folder: Path
    note: Note

    def settings(self, wanted: Settings) -> Settings:
        """The settings that are wanted, on this ingest: with what its vectors were made with."""
        made_with = {
            name: value
            for name, value in self.note.stored_with.items()
            if value is not None and name != "embedder_url"  # noted without its password; it is given anew
        }
        return wanted.model_copy(update={**NO_SERVERS, **made_with, "data_dir": self.folder.absolute()})


@contextmanager
def made(wanted: Settings, events: Sequence[TurnEvent], digest: str, keep: Path | None) -> Iterator[Ingest]:
    """Push the events through a system of its own and wait until each can be recalled; `keep` is a new folder for it.

    Raises `NotReady` when they cannot be stored, or `keep` is not empty.
    """
    with scratch_settings(wanted, keep) as settings:
        turns, chunks, advice, scripts = in_child(_ingest, settings, events)
        stored_with = {name: shown(name, getattr(settings, name)) for name in STORED_WITH}
        note = Note(NOTE_FORMAT, len(events), digest, stored_with, scripts, turns, chunks, advice)
        (settings.data_dir / NOTE).write_text(json.dumps(asdict(note), indent=1) + "\n", encoding="utf-8")
        yield Ingest(settings.data_dir, note)


def _ingest(settings: Settings, events: Sequence[TurnEvent]) -> tuple[int, int, list[str], list[str] | None]:
    """(turns, chunks, advice, scripts of the embedder) once all is stored."""
    quiet_logs(settings)
    err = Console(markup=False, emoji=False, highlight=False, stderr=True)
    terminal = Terminal(settings, json=False, out=err, err=err)
    terminal.note(f"ingesting {len(events):,} turns with {settings.embedder}", style="dim")
    with running_system(terminal, settings) as supervisor:
        push_and_drain(terminal, settings, supervisor, events, DRAIN_TIMEOUT)
        status = gather_status(settings)
    return status["catalog"]["turns"], status["catalog"]["chunks"], status["advice"], _scripts(settings)


def kept(folder: Path, wanted: Settings, events: Sequence[TurnEvent], digest: str) -> Ingest:
    """The ingest in `folder`, or in a folder below it, that was made with the settings that are given in `wanted`.

    Raises `UsageError` when there is none, or it holds other turns.
    """
    found = _ingests_in(folder)
    if not found:
        raise UsageError(f"--reuse {folder}: no ingest was kept there; make one with --keep {folder}")
    fitting = [one for one in found if _fits(one, wanted, wanted.model_fields_set)]
    if len(fitting) > 1:  # what was not given then is the default
        fitting = [one for one in fitting if _fits(one, wanted, set(STORED_WITH))]
    if len(fitting) != 1:
        given = _described({name: getattr(wanted, name) for name in wanted.model_fields_set & set(STORED_WITH)})
        held = "; ".join(f"{one.folder}: {_described(one.note.stored_with)}" for one in found)
        raise UsageError(
            f"--reuse {folder}: no ingest there was made with {given or 'the default settings'}. There are: {held}"
        )
    _check_turns(fitting[0], wanted, events, digest)
    return fitting[0]


def digest_of(events: Sequence[TurnEvent]) -> str:
    """64 hex digits of SHA-256 over the events, in order."""
    digest = hashlib.sha256()
    for event in events:
        line = event.to_json()
        digest.update(b"%d:" % len(line) + line)
    return digest.hexdigest()


def _ingests_in(folder: Path) -> list[Ingest]:
    if not folder.is_dir():
        raise UsageError(f"--reuse {folder}: no such folder")
    places = [folder, *sorted(path for path in folder.iterdir() if path.is_dir())]
    return [Ingest(place, _read_note(place / NOTE)) for place in places if (place / NOTE).is_file()]


def _read_note(path: Path) -> Note:
    try:
        note = Note(**json.loads(path.read_bytes()))
    except (ValueError, TypeError):
        note = None
    if note is None or note.format != NOTE_FORMAT:
        raise UsageError(f"{path}: not a note of this version's eval; make the ingest anew with --keep")
    return note


def _fits(ingest: Ingest, wanted: Settings, names: set[str]) -> bool:
    looked_at = names & set(STORED_WITH)
    return all(ingest.note.stored_with.get(name) == shown(name, getattr(wanted, name)) for name in looked_at)


def _check_turns(ingest: Ingest, wanted: Settings, events: Sequence[TurnEvent], digest: str) -> None:
    note, where = ingest.note, f"--reuse {ingest.folder}"
    if note.events != len(events):
        raise UsageError(f"{where}: {note.events:,} turns were ingested there, TURNS has {len(events):,}")
    if note.digest != digest:
        raise UsageError(
            f"{where}: its {note.events:,} turns are not those of TURNS: one differs, or the scopes of QUERIES put "
            "other conversations together; make the ingest anew with --keep"
        )
    catalog = Catalog.open(ingest.settings(wanted).catalog_location)
    turns = catalog.counts().turns
    catalog.close()
    if turns != note.turns:
        raise NotReady(f"{where}: {note.turns:,} turns were stored there, and it holds {turns:,} now")


def _scripts(settings: Settings) -> list[str] | None:
    catalog = Catalog.open(settings.catalog_location)
    active = catalog.spaces.active()
    catalog.close()
    return None if active is None or active.scripts is None else sorted(active.scripts)


def _described(values: dict[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in values.items() if value is not None)
