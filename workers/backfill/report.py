"""What an import has done, file by file. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from producers.events import TurnEvent
from producers.transcripts.port import Bad

MAX_BAD_SHOWN = 100
"""Bad places kept of one file; all of them are counted."""


@dataclass
class FileReport:
    """One file."""

    path: str
    format: str
    imported: int = 0
    already_there: int = 0
    """Imported before, by this or another copy, or said live."""
    left_out: Counter[str] = field(default_factory=Counter)
    bad: list[Bad] = field(default_factory=list)
    """The first `MAX_BAD_SHOWN`."""
    bad_count: int = 0
    bad_earlier: int = 0
    """Bad places in the part that an earlier run has read, which this one did not read again."""
    unreadable: str | None = None
    """Why the file as a whole was not imported."""
    unchanged: bool = False
    """It was imported before and has not changed, so it was not opened."""

    def add_bad(self, bad: Bad) -> None:
        self.bad_count += 1
        if len(self.bad) < MAX_BAD_SHOWN:
            self.bad.append(bad)

    @property
    def all_bad(self) -> int:
        """Places, or the file as a whole."""
        return self.bad_count + self.bad_earlier + (self.unreadable is not None)

    def as_json(self) -> dict[str, Any]:
        return {
            "path": self.path,
            "format": self.format,
            "imported": self.imported,
            "already_there": self.already_there,
            "left_out": dict(self.left_out),
            "bad": [{"place": bad.place, "reason": bad.reason} for bad in self.bad],
            "bad_count": self.bad_count,
            "bad_earlier": self.bad_earlier,
            "unreadable": self.unreadable,
            "unchanged": self.unchanged,
        }


@dataclass
class Report:
    """All files of one import."""

    files: list[FileReport] = field(default_factory=list)
    not_read: list[tuple[str, str]] = field(default_factory=list)
    """(path, reason) of what was found on the way and is no file that could be read."""
    unknown: list[str] = field(default_factory=list)
    """Files that were come across, look like transcripts, and are in no format that is known."""
    passed: Counter[str] = field(default_factory=Counter)
    """Files and folders on the way that are no transcripts or were not wanted, by reason."""
    examples: list[TurnEvent] = field(default_factory=list)
    """The first turns, for a dry run."""
    spooled: int = 0
    """Of the imported, those that wait on this machine."""
    warning: str = ""
    """Why they do, or others, and what to do."""

    @property
    def imported(self) -> int:
        return sum(report.imported for report in self.files)

    @property
    def already_there(self) -> int:
        return sum(report.already_there for report in self.files)

    @property
    def bad(self) -> int:
        """Places, files and paths that could not be read, now or by the run that read them."""
        return len(self.not_read) + sum(report.all_bad for report in self.files)

    def left_out(self) -> Counter[str]:
        return sum((report.left_out for report in self.files), Counter())

    def by_format(self) -> dict[str, list[FileReport]]:
        """The files by format, in the order of the names."""
        found: dict[str, list[FileReport]] = {}
        for report in sorted(self.files, key=lambda one: one.format):
            found.setdefault(report.format, []).append(report)
        return found

    def as_json(self, *, seconds: float, dry_run: bool) -> dict[str, Any]:
        return {
            "imported": self.imported,
            "already_there": self.already_there,
            "left_out": dict(self.left_out()),
            "bad": self.bad,
            "spooled": self.spooled,
            "warning": self.warning or None,
            "seconds": round(seconds, 2),
            "dry_run": dry_run,
            "files": [report.as_json() for report in self.files],
            "unknown": self.unknown,
            "passed": dict(self.passed),
            "not_read": [{"path": path, "reason": reason} for path, reason in self.not_read],
            "examples": examples_as_json(self.examples),
        }


def shown_path(path: Path) -> str:
    """The path as text that can be stored and printed, also where its bytes are no UTF-8."""
    return str(path).encode(errors="surrogateescape").decode(errors="backslashreplace")


def examples_as_json(examples: Sequence[TurnEvent]) -> list[dict[str, Any]]:
    return [event.model_dump(mode="json", exclude_defaults=True) for event in examples]
