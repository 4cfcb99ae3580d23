"""Codex: `~/.codex/sessions/YYYY/MM/DD/rollout-*.jsonl`, archived ones, and `.jsonl.zst`. Does I/O.

Response items are what was said; events repeat messages and bring those that have no item. The first session_meta is
the rollout's own; a further one stands before history that a fork or a sub-agent has copied, whose times are the
copying's and not kept.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from producers.events import Role
from producers.transcripts.codex_items import INJECTED, call_of, message_text, result_of, thoughts, with_images
from producers.transcripts.codex_turns import Turns
from producers.transcripts.json_lines import Line, Position, parse_line
from producers.transcripts.line_reading import begin_of, read_lines
from producers.transcripts.port import Bad, Item, LeftOut, ReadOptions, Said, Sample, State
from producers.transcripts.recent import Recent
from producers.transcripts.text import moment, tool_result
from producers.transcripts.values import mapping, string

CALLS_REMEMBERED = 128
"""A result names its call only by id; calls run in parallel by the dozen."""
COPYING_SECONDS = 10
"""History is copied within a second of a rollout's beginning; real ones were written in 50 ms."""
DETECTION_LINES = 20
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_BEGIN_OF_HEADER = re.compile(rb'\{"timestamp":"[^"]{1,40}",(?:"ordinal":\d+,)?"type":"session_meta","payload":\{')
_KINDS = frozenset({"session_meta", "response_item", "event_msg", "turn_context", "compacted"})
_COMPACTIONS = frozenset({"compaction", "context_compaction", "compaction_summary"})
_REPEATED = "repeated as an event"
_MESSAGE_EVENTS: dict[str, tuple[Role, str]] = {
    "user_message": ("user", "message"),
    "agent_message": ("assistant", "message"),
}
_COMPLETED_ITEMS: dict[str, Role] = {"UserMessage": "user", "AgentMessage": "assistant", "Plan": "assistant"}


class CodexReader:
    """Codex's rollouts."""

    name = "codex"
    in_place = False

    def recognises(self, sample: Sample) -> bool:
        complete = sample.head.split(b"\n")[:DETECTION_LINES]
        found = [record for line in complete for record in parse_line(line, _is_record)[0]]
        if any(_is_record(record) for record in found) or any(_is_old_header(record) for record in found[:1]):
            return True
        # A header with instructions and tools alone can be longer than the sample.
        return b"\n" not in sample.head and _BEGIN_OF_HEADER.match(sample.head) is not None

    def read(self, path: Path, options: ReadOptions, state: State | None) -> Iterator[Item]:
        return read_lines(path, _Reading(path, options, state or {}), _is_record)


@dataclass
class _Rollout:
    """What is known of the rollout as a whole."""

    session: str = ""
    begun: float | None = None
    """When its file was begun, in seconds since 1970."""
    copies: bool = False
    """It holds history of another rollout."""
    facts: dict[str, str] = field(default_factory=dict)


class _Reading:
    """One pass over a file."""

    def __init__(self, path: Path, options: ReadOptions, state: State) -> None:
        self._path = path
        self._options = options
        self.begin = begin_of(state)
        self._rollout = _Rollout(**state.get("rollout", {}))
        self._turns = Turns(state.get("turns"))
        self._calls = Recent(CALLS_REMEMBERED, state.get("calls"))

    def state(self, then: Position) -> State:
        return {
            **then._asdict(),
            "rollout": {**vars(self._rollout), "facts": dict(self._rollout.facts)},
            "turns": self._turns.state(),
            "calls": self._calls.state(),
        }

    def finish(self) -> Iterator[Item]:
        return iter(())

    def line(self, line: Line) -> Iterator[Item]:
        for record in line.records:
            yield from self._record(record, f"line {line.number}")
        yield from line.bad()

    def _record(self, record: dict[str, Any], place: str) -> Iterator[Item]:
        kind, payload = string(record.get("type")), record.get("payload")
        if kind == "session_meta" or _is_old_header(record):
            self._meta(mapping(payload) or record)
        elif kind in _KINDS and not isinstance(payload, dict):
            yield Bad(place, "a record without a payload")
        elif kind == "event_msg":
            yield from self._event(mapping(payload), record, place)
        elif kind == "turn_context":
            self._context(mapping(payload))
        elif kind == "compacted":
            yield LeftOut("compaction summary")
        elif kind == "response_item":
            yield from self._item(mapping(payload), record, place)
        elif kind and payload is None:  # before 0.32 a line was the item itself
            yield from self._item(record, record, place)
        elif kind or "record_type" in record:
            yield LeftOut("other record")
        else:
            yield Bad(place, "a record without a type")

    def _meta(self, meta: dict[str, Any]) -> None:
        identifier = string(meta.get("id")) or string(meta.get("session_id"))
        rollout = self._rollout
        if rollout.session:
            rollout.copies = True
        else:
            named = _UUID.findall(self._path.name)
            # A fork can keep the first conversation's id in its header; its file name ends in its own.
            rollout.session = (named[-1] if identifier in named else identifier) or self._session()
            begun = moment(meta.get("timestamp"))
            rollout.begun = _minted(rollout.session) or (begun.timestamp() if begun else None)
            rollout.facts.update(_facts(meta))
        self._turns.conversation(identifier)

    def _session(self) -> str:
        """The conversation's id; of a file whose header is lost, the one in its name."""
        if not self._rollout.session:
            named = _UUID.findall(self._path.name)
            self._rollout.session = named[-1] if named else self._path.name.split(".")[0]
            self._turns.conversation(self._rollout.session)
        return self._rollout.session

    def _context(self, context: dict[str, Any]) -> None:
        self._turns.begin(string(context.get("turn_id")))
        for key in ("model", "cwd"):
            if value := string(context.get(key)):
                self._rollout.facts[key] = value

    def _said(self, role: Role, content: str, origin: str, record: dict[str, Any], place: str) -> Said:
        session, facts = self._session(), dict(self._rollout.facts)
        return Said(session, role, content, origin, place, created_at=self._time(record), metadata=facts)

    def _time(self, record: dict[str, Any]) -> datetime | None:
        time, begun = moment(record.get("timestamp")), self._rollout.begun
        if time is None or begun is None or not self._rollout.copies:
            return time
        minted = _minted(self._turns.turn)
        copied = minted < begun if minted is not None else time.timestamp() < begun + COPYING_SECONDS
        return None if copied else time

    def _item(self, item: dict[str, Any], record: dict[str, Any], place: str) -> Iterator[Item]:
        kind = string(item.get("type"))
        passed = mapping(item.get("internal_chat_message_metadata_passthrough")) or mapping(item.get("metadata"))
        self._session()
        self._turns.begin(string(passed.get("turn_id")))
        if kind == "message":
            role = item.get("role")
            if role == "user" or role == "assistant":
                yield from self._message("user" if role == "user" else "assistant", item, "item", record, place)
            else:
                yield LeftOut(INJECTED)
        elif kind == "agent_message":
            for said in self._message("user", item, "item", record, place):
                speaker = string(item.get("author")) or None
                yield replace(said, speaker=speaker) if isinstance(said, Said) else said
        elif kind == "reasoning":
            text = thoughts(item) if self._options.thinking else ""
            origin = self._turns.message("reasoning", text, "item") if text else None
            yield self._said("assistant", text, origin, record, place) if origin else LeftOut("thinking")
        elif (call := call_of(item)) is not None:
            yield self._call(*call, item, record, place)
        elif kind.endswith("_output"):
            yield self._result(item, record, place)
        else:
            yield LeftOut("compaction summary" if kind in _COMPACTIONS else "other record")

    def _message(
        self, role: Role, item: dict[str, Any], source: str, record: dict[str, Any], place: str
    ) -> Iterator[Item]:
        text, images, reasons = message_text(item.get("content"), user=role == "user")
        yield from (LeftOut(reason) for reason in reasons if source == "item")
        if not text and not images:
            if not reasons:
                yield LeftOut("empty")
            return
        self._session()
        origin = self._turns.message(role, text, source)
        if origin is None:
            yield LeftOut(_REPEATED)
        else:
            yield self._said(role, with_images(text, images), origin, record, place)

    def _event(self, event: dict[str, Any], record: dict[str, Any], place: str) -> Iterator[Item]:
        kind = string(event.get("type"))
        self._turns.begin(string(event.get("turn_id")))
        completed = mapping(event.get("item"))
        said: dict[str, Any]
        if kind in _MESSAGE_EVENTS:
            role, key = _MESSAGE_EVENTS[kind]
            images = event.get("images")
            pictures = [{"type": "input_image"}] * len(images) if isinstance(images, list) else []
            said = {"content": [{"type": "text", "text": event.get(key)}, *pictures]}
            yield from self._message(role, said, "event", record, place)
        elif kind == "item_completed" and string(completed.get("type")) in _COMPLETED_ITEMS:
            role = _COMPLETED_ITEMS[completed["type"]]
            said = {"content": completed.get("content", completed.get("text"))}
            yield from self._message(role, said, "completed", record, place)
        else:
            if kind == "thread_name_updated" and (title := string(event.get("thread_name"))):
                self._rollout.facts["title"] = title
            yield LeftOut("event")

    def _call(self, tool: str, content: str, item: dict[str, Any], record: dict[str, Any], place: str) -> Said:
        call = string(item.get("call_id")) or string(item.get("id"))
        self._calls.put(call, tool)
        said = self._said("assistant", content, self._turns.call("call", call, content), record, place)
        return replace(said, kind="tool-call", metadata={**said.metadata, "tool": tool, "call_id": call})

    def _result(self, item: dict[str, Any], record: dict[str, Any], place: str) -> Item:
        text, failed = result_of(item)
        content = tool_result(text, self._options)
        if content is None:
            return LeftOut("tool result" if text.strip() else "empty tool result")
        call = string(item.get("call_id"))
        said = self._said("tool", content, self._turns.call("result", call, text), record, place)
        metadata = {**said.metadata, "tool": self._calls.get(call), "call_id": call}
        if failed:
            metadata["failed"] = True
        return replace(said, kind="tool-result", metadata=metadata)


def _is_record(record: dict[str, Any]) -> bool:
    return string(record.get("type")) in _KINDS and isinstance(record.get("payload"), dict)


def _is_old_header(record: dict[str, Any]) -> bool:
    """The first line before 0.32."""
    return "type" not in record and "record_type" not in record and {"id", "timestamp"} <= record.keys()


def _minted(identifier: str) -> float | None:
    """When a UUID of version 7 was made, in seconds since 1970; None for all else."""
    if not _UUID.fullmatch(identifier) or identifier[14] != "7":
        return None
    return int(identifier[:8] + identifier[9:13], 16) / 1000


def _facts(meta: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """What every turn of the rollout carries with it."""
    spawn = mapping(mapping(mapping(meta.get("source")).get("subagent")).get("thread_spawn"))
    parents = (spawn.get("parent_thread_id"), meta.get("parent_thread_id"), meta.get("forked_from_id"))
    agents = (spawn.get("agent_nickname"), meta.get("agent_nickname"), spawn.get("agent_role"), meta.get("agent_role"))
    for name, values in (
        ("parent_session", parents),
        ("agent", agents),
        ("cwd", (meta.get("cwd"),)),
        ("git_branch", (mapping(meta.get("git")).get("branch"),)),
    ):
        if value := next((string(value) for value in values if string(value)), ""):
            yield name, value
