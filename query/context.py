"""The context block: what was recalled as text for a prompt, bounded, cited, and unable to speak for itself. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from producers.context_template import ContextTemplate
from producers.settings import Settings
from query.around import Entry, Neighbour, Passage, Recalled
from query.cutting import Size, fit, lines_of
from query.markers import Guard

Order = Literal["relevance", "time"]
BESIDE = "[+]"
"""Citation of a turn that is no hit itself."""
_LATEST = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True)
class Layout:
    """How the block is written, and how large it may be."""

    template: ContextTemplate
    room: Size
    order: Order = "relevance"

    @classmethod
    def of(cls, settings: Settings) -> Layout:
        room = Size(settings.context_chars, settings.context_tokens)
        return cls(ContextTemplate.parse(settings.context_template), room, settings.context_order)


def context_block(passages: Sequence[Passage], layout: Layout) -> str:
    """The passages as one text within `layout.room`; empty when there is nothing to show.

    Hits take the room first, best first, then the turns around them, nearest first. What does not fit whole ends with
    a whole sentence or line. Numbers are the hits' places in the answer, whatever the order.
    """
    template = layout.template
    frame = [part for part in (template.opening, template.closing) if part]
    writer = _Writer(template, layout.room.less(*frame))
    hits = sorted((entry for one in passages for entry in one.entries if entry.number), key=lambda one: one.number or 0)
    for entry in hits:
        writer.write(entry, blank_lines=1)
    for entry in _nearest_first(passages, writer):
        writer.write(entry, blank_lines=0)
    shown = [one for one in passages if any(entry.number and entry in writer for entry in one.entries)]
    if not shown:
        return ""
    if layout.order == "time":
        shown.sort(key=_said)
    body = "\n\n".join("\n".join(writer.text(entry) for entry in one.entries if entry in writer) for one in shown)
    return "\n".join(part for part in (template.opening, body, template.closing) if part)


class _Writer:
    """Entries as they are written, and the room that is left."""

    def __init__(self, template: ContextTemplate, room: Size) -> None:
        self._template = template
        self._guard = Guard(template)
        self._room = room
        self._texts: dict[int, str] = {}

    def __contains__(self, entry: Entry) -> bool:
        return id(entry) in self._texts

    def text(self, entry: Entry) -> str:
        return self._texts[id(entry)]

    def write(self, entry: Entry, blank_lines: int) -> None:
        """Write it whole or in part, or leave it out when there is no room for a piece that says something."""
        values = self._guard.values(fields_of(entry))
        before, after = self._template.before_content(values), self._template.after_content(values)
        room = self._room.less(*before, *after, *[""] * blank_lines)
        cut = isinstance(entry.turn, Neighbour) and entry.turn.cut
        content = fit(self._guard.content(in_fences(entry.turn)), room.less(""), goes_on=cut)
        if content:
            self._texts[id(entry)] = "\n".join([*before, content, *after])
            self._room = room.less(content)


def _nearest_first(passages: Iterable[Passage], writer: _Writer) -> list[Entry]:
    """The turns beside the hits that are shown: by distance, then by the rank of the hit."""
    found = []
    for passage in passages:
        hits = [entry for entry in passage.entries if entry.number and entry in writer]
        for entry in passage.entries if hits else ():
            if not entry.number:
                near = min((abs(entry.turn.turn_index - hit.turn.turn_index), hit.number or 0) for hit in hits)
                found.append((near, entry))
    return [entry for _, entry in sorted(found, key=lambda one: one[0])]


def _said(passage: Passage) -> tuple[datetime, int]:
    """When it begins; without a time behind all that have one, best first."""
    times = [entry.turn.created_at for entry in passage.entries if entry.turn.created_at]
    return (min(times, default=_LATEST), passage.best)


def fields_of(entry: Entry) -> dict[str, str]:
    """The fields of a template, but for the content."""
    turn = entry.turn
    said = turn.created_at.astimezone(UTC) if turn.created_at else None
    part = f" part {turn.chunk_index + 1} of {turn.total_chunks}" if turn.total_chunks > 1 else ""
    named = turn.speaker if turn.speaker and turn.speaker != turn.role else None
    return {
        "citation": f"[{entry.number}]" if entry.number else BESIDE,
        "place": f"{turn.session_id}:{turn.turn_index}{part}",
        "session": turn.session_id,
        "turn": str(turn.turn_index),
        "role": turn.role,
        "speaker": named or turn.role,
        "who": f"{turn.role} ({named})" if named else turn.role,
        "time": said.strftime("%Y-%m-%d %H:%M UTC") if said else "time unknown",
        "date": said.strftime("%Y-%m-%d") if said else "date unknown",
    }


def in_fences(turn: Recalled) -> str:
    """Its content; a piece out of the middle of a code fence gets the fence's marks again."""
    text = turn.content
    lines = list(lines_of(text))
    if turn.kind != "code" or lines[0].kind == "open":
        return text
    last = re.fullmatch(r"\s*(`{3,}|~{3,})\s*", text[lines[-1].start :])
    longest = max((len(run) for run in re.findall(r"^\s*(`{3,})", text, re.MULTILINE)), default=2)
    mark = last[1] if last else "`" * (longest + 1)
    return f"{mark}{turn.language or ''}\n{text}"
