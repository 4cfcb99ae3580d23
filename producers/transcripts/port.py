"""What a transcript reader is: a path in, items out, in constant memory. No I/O.

A reader knows its format and nothing of tenants, stores or streams. It says what was said, in the file's own order, and
where it stopped; `workers/backfill` decides which of it is new, gives each turn its place in its session, and sends it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, Protocol

from producers.events import Role, TurnEvent

Kind = Literal["prose", "tool-call", "tool-result"]
"""Becomes a tag of the turn, except for prose."""
State = dict[str, Any]
"""JSON. What a reader needs to go on behind a `Mark`; each format has its own."""

SAMPLE_BYTES = 64 << 10
"""What detection looks at."""


@dataclass(frozen=True)
class Said:
    """One thing that was said: prose, a call of a tool, or a tool's result."""

    session: str
    """The format's own id of the conversation; where it has none, a digest of what it begins with."""
    role: Role
    content: str
    """As in the file, without thinking and image bytes, which leave a marker; lone surrogates and NUL may be in it."""
    origin: str
    """What makes it the same thing in every copy of the file: the format's own id of the message (and the part's place
    in it), else a digest of conversation, position, role and content. A resumed copy or a branch has the same ones."""
    place: str
    """Where it stands, for people: `line 12`, `messages row 7`, `conversation 3`."""
    kind: Kind = "prose"
    created_at: datetime | None = None
    """Aware; None where the file says nothing."""
    speaker: str | None = None
    agent_id: str | None = None
    metadata: dict[str, Any] = field(default_factory=dict)
    """Small facts: tool, call_id, model, cwd, git_branch, title, parent_session, agent."""


@dataclass(frozen=True)
class Event:
    """A turn that names its own tenant, agent, session and index: it is sent as it is, and known by its identity."""

    event: TurnEvent
    """Its sizes are not checked yet: `producers.events.check_sizes`."""
    place: str


@dataclass(frozen=True)
class Bad:
    """A place that should hold something and cannot be read; the rest of the file is."""

    place: str
    reason: str
    """What is wrong there, without content."""


@dataclass(frozen=True)
class LeftOut:
    """Something that is no conversation, or is off: counted by reason."""

    reason: str
    """A few words, the same for all of its kind: `thinking`, `injected context`, `progress`, `copied history`."""


@dataclass(frozen=True)
class Mark:
    """Everything before it has been said; a reader that is given `state` goes on right behind it."""

    state: State
    done: float
    """Share of the file that is read, from 0 to 1."""


Item = Said | Event | Bad | LeftOut | Mark


@dataclass(frozen=True)
class ReadOptions:
    """What the person who imports decides about the content."""

    thinking: bool = False
    """Keep thinking as prose, in a paragraph of its own; else a marker stands where it was between other prose."""
    tool_results: Literal["full", "head", "skip"] = "head"
    tool_result_chars: int = 2000
    """Of a result, what `head` keeps."""


@dataclass(frozen=True)
class Sample:
    """The beginning of a file, for detection."""

    path: Path
    head: bytes
    """At most `SAMPLE_BYTES`; decompressed, when it is a .zst."""


class Unreadable(Exception):
    """The file as a whole cannot be imported; the message says why and what to do, without content."""


class UnknownFormat(Unreadable):
    """The file is empty, packed, or in no format that is known; in a folder with other files that is no fault."""


class Reader(Protocol):
    """One format."""

    name: str
    """As `--format` takes it and the turn's `source` shows it: `claude-code`."""
    in_place: bool
    """The file is changed in place, as a database is: `state` names rows, not bytes, and stays good."""

    def recognises(self, sample: Sample) -> bool:
        """Whether the file is in this format, by its content; the name may only support it. Never raises."""
        ...

    def read(self, path: Path, options: ReadOptions, state: State | None) -> Iterator[Item]:
        """The file's items, from its start or from where `state` stands; ends with a `Mark`.

        Marks come often enough (each few hundred items) that repeating what is behind the last costs little. What a
        file holds never raises anything but `Unreadable`; `OSError` of the file system passes.
        """
        ...
