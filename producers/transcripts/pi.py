"""Pi and OpenClaw: `~/.pi/agent/sessions/--<cwd>--/*.jsonl` and `agents/<name>/sessions/*.jsonl`. Does I/O.

Version 1 has no entry ids and version 3 makes them anew when it takes over an old file; a branch copies entries into a
file of its own. What all of them keep is a message's time and content, so they are its origin. Branches inside one file
were all said; they are read in the file's order.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from producers.events import Role
from producers.transcripts.blocks import RECALLED, Prose, blocks, without_elements
from producers.transcripts.json_lines import Line, Position, parse_line
from producers.transcripts.line_reading import begin_of, read_lines
from producers.transcripts.port import Bad, Item, LeftOut, ReadOptions, Said, Sample, State
from producers.transcripts.text import digest, image_marker, moment, tool_call, tool_result
from producers.transcripts.values import string

DETECTION_LINES = 20
INJECTED = "injected context"
_COMPACTION = "compaction summary"
_LEFT_OUT = {
    "compaction": _COMPACTION,
    "branch_summary": _COMPACTION,
    "custom_message": INJECTED,
    "model_change": "settings",
    "thinking_level_change": "settings",
}
_LEFT_OUT_ROLES = {
    "compactionSummary": _COMPACTION,
    "branchSummary": _COMPACTION,
    "bashExecution": "local command",
    "custom": INJECTED,
    "hookMessage": INJECTED,
    "system": INJECTED,
}
_MESSAGE_KEYS = frozenset({"type", "timestamp", "message"})
_UNTRUSTED = re.compile(
    r"\s*[\w ]{1,60} \((?:untrusted metadata|untrusted, for context)\):\s*```(?:json)?\n.*?\n```\s*", re.DOTALL
)
"""What OpenClaw puts before a message that came over a channel: who sent it, and what it answers."""
_STAMP = re.compile(r"\s*\[[A-Z][a-z]{2} \d{4}-\d\d-\d\d \d\d:\d\d[^\]\n]{0,40}\] ?")


class PiReader:
    """The sessions of Pi, and of OpenClaw, which is built on it."""

    name = "pi"
    in_place = False

    def recognises(self, sample: Sample) -> bool:
        complete = sample.head.split(b"\n")[:DETECTION_LINES]
        return any(_is_header(record) for line in complete for record in parse_line(line, _is_record)[0])

    def read(self, path: Path, options: ReadOptions, state: State | None) -> Iterator[Item]:
        return read_lines(path, _Reading(path, options, state or {}), _is_record)


class _Reading:
    """One pass over a file."""

    def __init__(self, path: Path, options: ReadOptions, state: State) -> None:
        self._options = options
        self.begin = begin_of(state)
        self._session: str = state.get("session", path.name.split(".")[0].rpartition("_")[2])
        """Until the header tells; the file's name ends in the same id."""
        self._facts: dict[str, str] = dict(state.get("facts", {}))
        self._unanswered: str = state.get("unanswered", "")
        """Digest of the prompt that nothing was said to yet; when its request is tried again, it is logged again."""

    def state(self, then: Position) -> State:
        known = {"session": self._session, "facts": dict(self._facts), "unanswered": self._unanswered}
        return {**then._asdict(), **known}

    def finish(self) -> Iterator[Item]:
        return iter(())

    def line(self, line: Line) -> Iterator[Item]:
        for record in line.records:
            yield from self._record(record, f"line {line.number}")
        yield from line.bad()

    def _record(self, record: dict[str, Any], place: str) -> Iterator[Item]:
        kind = string(record.get("type"))
        if kind == "session":
            self._header(record)
        elif kind == "message":
            message = record.get("message")
            if isinstance(message, dict):
                yield from self._message(message, record, place)
            else:
                yield Bad(place, "a message without content")
        elif kind:
            if kind == "session_info" and (title := string(record.get("name"))):
                self._facts["title"] = title
            yield LeftOut(_LEFT_OUT.get(kind, "other record"))
        else:
            yield Bad(place, "a record without a type")

    def _header(self, header: dict[str, Any]) -> None:
        self._session = string(header.get("id")) or self._session
        if cwd := string(header.get("cwd")):
            self._facts["cwd"] = cwd
        if parent := string(header.get("parentSession")) or string(header.get("branchedFrom")):
            self._facts["parent_session"] = Path(parent).name.split(".")[0].rpartition("_")[2]

    def _message(self, message: dict[str, Any], record: dict[str, Any], place: str) -> Iterator[Item]:
        role = string(message.get("role"))
        if role in _LEFT_OUT_ROLES or role not in ("user", "assistant", "toolResult"):
            yield LeftOut(_LEFT_OUT_ROLES.get(role, "other record"))
            return
        stamp = _stamp(message.get("timestamp")) or _stamp(record.get("timestamp"))
        time = moment(message.get("timestamp")) or moment(record.get("timestamp"))
        known: Role = "user" if role == "user" else "assistant" if role == "assistant" else "tool"
        turn = Said(self._session, known, "", stamp, place, created_at=time, metadata=dict(self._facts))
        if model := string(message.get("model")):
            turn.metadata["model"] = model
        if known == "tool":
            yield self._result(message, turn)
        else:
            yield from self._prose_and_calls(message, turn)

    def _prose_and_calls(self, message: dict[str, Any], turn: Said) -> Iterator[Item]:
        prose, items, texts = Prose(self._options), list[Item](), list[str]()
        for number, block in enumerate(blocks(message.get("content"))):
            kind = string(block.get("type"))
            if kind == "text":
                text, injected = _own_text(string(block.get("text")), user=turn.role == "user")
                items += [LeftOut(INJECTED)] * injected
                texts.append(text)
                prose.add(text)
            elif kind == "thinking" and prose.think(string(block.get("thinking"))):
                items.append(LeftOut("thinking"))
            elif kind == "image":
                prose.add(image_marker(string(block.get("mimeType")) or None))
            elif kind == "toolCall":
                items.append(_call(block, number, turn))
        if not prose and not items:
            yield LeftOut("empty")
            return
        prompt = digest(*texts) if turn.role == "user" else ""
        if prompt and prompt == self._unanswered:
            yield LeftOut("repeated prompt")
            return
        if prompt or any(text.strip() for text in texts) or any(isinstance(item, Said) for item in items):
            self._unanswered = prompt
        if prose:
            yield replace(turn, content=prose.text(), origin=digest("pi", turn.origin, turn.role, *texts))
        yield from items

    def _result(self, message: dict[str, Any], turn: Said) -> Item:
        text = _result_text(message.get("content"))
        content = tool_result(text, self._options)
        if content is None:
            return LeftOut("tool result" if text.strip() else "empty tool result")
        call = string(message.get("toolCallId"))
        metadata = {**turn.metadata, "tool": string(message.get("toolName")), "call_id": call}
        if message.get("isError") is True:
            metadata["failed"] = True
        origin = digest("pi", turn.origin, "result", call, text)
        return replace(turn, kind="tool-result", content=content, origin=origin, metadata=metadata)


def _call(block: dict[str, Any], number: int, turn: Said) -> Said:
    tool, call = string(block.get("name")), string(block.get("id"))
    content = tool_call(tool, block.get("arguments"))
    origin = digest("pi", turn.origin, "call", number, call, content)
    metadata = {**turn.metadata, "tool": tool, "call_id": call}
    return replace(turn, kind="tool-call", content=content, origin=origin, metadata=metadata)


def _own_text(text: str, *, user: bool) -> tuple[str, int]:
    """What was written of a text, and how many injected pieces are left out of it."""
    if not user:
        return text, 0
    text, injected = without_elements(text, (RECALLED,))
    begin = 0
    while found := _UNTRUSTED.match(text, begin):
        begin, injected = found.end(), injected + 1
    if stamp := _STAMP.match(text, begin):
        begin = stamp.end()
    return text[begin:], injected


def _result_text(content: Any) -> str:
    parts = []
    for block in blocks(content):
        if block.get("type") == "image":
            parts.append(image_marker(string(block.get("mimeType")) or None))
        else:
            parts.append(without_elements(string(block.get("text")), (RECALLED,))[0])
    return "\n".join(parts)


def _stamp(value: Any) -> str:
    return str(value) if isinstance(value, (str, int, float)) else ""


def _is_header(record: dict[str, Any]) -> bool:
    return record.get("type") == "session" and isinstance(record.get("id"), str) and "timestamp" in record


def _is_record(record: dict[str, Any]) -> bool:
    return isinstance(record.get("type"), str) and "timestamp" in record
