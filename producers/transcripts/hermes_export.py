"""Hermes: what `hermes sessions export FILE.jsonl` writes, one session a line with its messages. Does I/O.

It lacks what was compacted; what it has is known by the same origins as in the database it came from.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

from producers.transcripts.hermes_history import History, copies_of_parent, copies_within, verdicts
from producers.transcripts.hermes_messages import (
    Message,
    branched_from,
    is_delegate,
    items,
    message,
    parent_of,
    session_facts,
)
from producers.transcripts.json_lines import Position, lines, opened, parse_line, share
from producers.transcripts.port import SAMPLE_BYTES, Bad, Item, LeftOut, Mark, ReadOptions, Sample, State, Unreadable

_TRACE = (
    "written by `hermes sessions export --format trace`, which gives every message a new id and the time of the "
    "export, so that nothing of it can be known again; export with --format jsonl, or import state.db itself"
)
_SESSION_KEYS = (b'"messages"', b'"source"', b'"started_at"')
_FIRST_ID = re.compile(rb'[\s\x00]*\{\s*"id":\s*("(?:[^"\\]|\\.)*")')
"""The id of an exported session; it is the first of its columns."""


class HermesExport:
    """Reads an export of sessions."""

    name = "hermes-export"
    in_place = False

    def recognises(self, sample: Sample) -> bool:
        """An export, or a trace, which only this reader can refuse with its reason."""
        line = sample.head.lstrip().partition(b"\n")[0]
        if _is_trace_line(line):
            return True
        if len(line) < SAMPLE_BYTES // 2:
            return any(_is_session(found) for found in parse_line(line, _is_session)[0])
        # A long line is cut in the sample: the columns come before the messages.
        return _FIRST_ID.match(line) is not None and all(key in line for key in _SESSION_KEYS)

    def read(self, path: Path, options: ReadOptions, state: State | None) -> Iterator[Item]:
        place = Position(state["line"], state["offset"]) if state else Position()
        export = _Export(path)
        with opened(path, place.offset) as file:
            for line in lines(file, place, _is_session):
                for found in line.records:
                    if _is_trace(found):
                        raise Unreadable(_TRACE)
                    yield from export.items(found, f"line {line.number}", options)
                yield from line.bad()
                place = line.then
                yield Mark({"line": place.line, "offset": place.offset}, share(file))
        yield Mark({"line": place.line, "offset": place.offset}, 1.0)


class _Export:
    """The sessions of one file; a branch's parent may stand before or behind it."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def items(self, record: dict[str, Any], place: str, options: ReadOptions) -> Iterator[Item]:
        for session in _sessions(record):
            if not _is_session(session):
                yield Bad(place, "not an exported session")
                continue
            try:
                yield from list(self._session(session, place, options))
            except RecursionError:
                yield Bad(place, "nested too deeply")

    def _session(self, session: dict[str, Any], place: str, options: ReadOptions) -> Iterator[Item]:
        said = _messages(session)
        history = _history(said)
        copies = copies_within(history) | self._copies_of_parent(session, said, history)
        facts = session_facts(session, "")
        name = session["id"]
        for number, (one, verdict) in enumerate(zip(said, verdicts(history, copies), strict=True), 1):
            if isinstance(verdict, LeftOut):
                yield verdict
            else:
                origin = f"hermes:{name}:{one.identity}:{verdict}"
                yield from items(one, name, origin, f"{place}, message {number}", facts, options)
        for _ in range(len(session["messages"]) - len(said)):
            yield Bad(place, "a message that is no object")

    def _copies_of_parent(self, session: dict[str, Any], said: list[Message], history: History) -> set[int]:
        name = parent_of(session)
        if name is None or name == session["id"] or is_delegate(session) or not said:
            return set()
        parent = self._parent(name)
        branch = branched_from(session) is not None or parent.get("end_reason") == "branched"
        if not parent or (not branch and parent.get("end_reason") != "compression"):
            return set()
        first = said[0].id
        before = [one for one in _messages(parent) if first is None or one.id is None or one.id < first]
        return copies_of_parent(_history(before), history, branch)

    def _parent(self, name: str) -> dict[str, Any]:
        offset = self._offsets.get(name)
        if offset is None:
            return {}
        with opened(self._path, offset) as file:
            line = next(lines(file, Position(0, offset), _is_session), None)
        for record in line.records if line else []:
            for session in _sessions(record):
                if session.get("id") == name and _is_session(session):
                    return session
        return {}

    @cached_property
    def _offsets(self) -> dict[str, int]:
        """Where each session's line begins; the file is looked through once, when a branch asks for its parent."""
        found = {}
        with opened(self._path) as file:
            offset = 0
            while head := file.readline(_HEAD_BYTES):
                if match := _FIRST_ID.match(head):
                    found[_unquoted(match[1])] = offset
                offset += len(head)
                while not head.endswith(b"\n") and (head := file.readline(_CHUNK_BYTES)):
                    offset += len(head)
        return found


_HEAD_BYTES = 4096
"""More than an id takes."""
_CHUNK_BYTES = 1 << 20


def _unquoted(text: bytes) -> str:
    try:
        return str(json.loads(text.decode("utf-8", "replace"), strict=False))
    except ValueError:
        return ""


def _sessions(record: dict[str, Any]) -> list[dict[str, Any]]:
    """An exported session, or with `--lineage` that and those which it continues, each of its own."""
    segments = record.get("segments")
    found = [one for one in segments if isinstance(one, dict)] if isinstance(segments, list) else []
    return found or [record]


def _messages(session: dict[str, Any]) -> list[Message]:
    return [message(entry) for entry in session["messages"] if isinstance(entry, dict)]


def _history(said: list[Message]) -> History:
    history = History()
    for one in said:
        history.add(one)
    return history


def _is_session(value: dict[str, Any]) -> bool:
    name = value.get("id")
    return isinstance(name, str) and bool(name) and isinstance(value.get("messages"), list) and "source" in value


def _is_trace(value: dict[str, Any]) -> bool:
    return value.get("version") == "hermes-agent" and "sessionId" in value


def _is_trace_line(line: bytes) -> bool:
    return b'"hermes-agent"' in line and any(_is_trace(found) for found in parse_line(line)[0])
