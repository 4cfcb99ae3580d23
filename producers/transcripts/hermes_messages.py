"""A message as Hermes stores and exports it, and what it says. Pure; the database and the export share it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from producers.events import Role
from producers.transcripts import text as texts
from producers.transcripts.contents import THINKING, Content, content_of
from producers.transcripts.port import Bad, LeftOut, ReadOptions, Said

_JSON_PREFIX = "\x00json:"
"""Hermes stores a list or an object as this and its JSON."""
_ROLES: dict[str, Role] = {"user": "user", "assistant": "assistant", "tool": "tool", "function": "tool"}
_SUMMARIES = ("[CONTEXT COMPACTION", "[CONTEXT SUMMARY]:", "[PRIOR CONTEXT")
"""How a compaction's summary begins: alone, in older versions, and merged into the first kept message."""
_REVIEWS = (
    "Review the conversation above and update the skill library",
    "Review the conversation above and consider saving to memory",
)
"""How Hermes asks itself to take notes; older versions wrote that into the session, and the answer behind it."""
_RECALLED = re.compile(r"<\s*memory-context\s*>.*?</\s*memory-context\s*>", re.IGNORECASE | re.DOTALL)
_PRUNED = ("[Old tool output cleared", "[Duplicate tool output")


@dataclass(frozen=True)
class Call:
    """One call of a tool."""

    id: str
    name: str
    arguments: Any


@dataclass(frozen=True)
class Message:
    """One row of `messages`, or one entry of an exported session's list."""

    id: int | None
    role: str
    content: Content
    thinking: str
    calls: tuple[Call, ...]
    call_id: str
    tool: str
    timestamp: Any
    taken_back: bool
    """By the user, with /undo or /rewind."""
    recalled: bool
    """Text that a memory provider had put into it has been cut out."""
    broken: str = ""
    """What of it could not be read."""

    @cached_property
    def text(self) -> str:
        return self.content.text

    @property
    def is_summary(self) -> bool:
        return self.text.lstrip().startswith(_SUMMARIES)

    @property
    def is_review(self) -> bool:
        return self.role in ("user", "system") and self.text.lstrip().startswith(_REVIEWS)

    @cached_property
    def identity(self) -> str:
        """The same in every copy that Hermes makes of it, whatever id and time that has."""
        calls = [(call.id, call.name, call.arguments) for call in self.calls]
        images = sum(kind == "image" for kind, _ in self.content.pieces)
        return texts.digest(self.role, self.text.strip(), images, calls, self.call_id)

    @property
    def exchange(self) -> tuple[Any, ...]:
        """What a compaction leaves as it is when it shortens a tool's result or a call's arguments."""
        if self.role == "tool" and self.call_id:
            return "result", self.call_id
        ids = tuple(call.id for call in self.calls if call.id)
        return ("calls", ids, self.text.strip()) if ids else self.words

    @property
    def words(self) -> tuple[Any, ...]:
        """What a branch keeps that copies roles and texts only."""
        return self.role, self.text.strip()


def message(row: Mapping[str, Any]) -> Message:
    """Read a row or an exported message, whatever is in it."""
    content, broken = _content(row.get("content"))
    calls, broken_calls = _calls(row.get("tool_calls"))
    content, recalled = _without_recall(content)
    identifier = row.get("id")
    active, compacted = row.get("active", 1), row.get("compacted", 0)
    return Message(
        id=identifier if isinstance(identifier, int) else None,
        role=_word(row.get("role")),
        content=content,
        thinking=_word(row.get("reasoning")) or _word(row.get("reasoning_content")),
        calls=calls,
        call_id=_word(row.get("tool_call_id")),
        tool=_word(row.get("tool_name")),
        timestamp=row.get("timestamp"),
        taken_back=active in (0, False) and compacted in (0, None, False),
        recalled=recalled,
        broken=broken or broken_calls,
    )


def items(
    said: Message, session: str, origin: str, place: str, facts: dict[str, Any], options: ReadOptions
) -> Iterator[Said | Bad | LeftOut]:
    """What a message that is part of the conversation says; `origin` is its own, `facts` is metadata of its session."""
    if said.broken:
        yield Bad(place, said.broken)
    if said.recalled:
        yield LeftOut("injected context")
    role = _ROLES.get(said.role)
    if role is None:
        yield LeftOut("system prompt" if said.role == "system" else "unknown role")
        return
    created_at = texts.moment(said.timestamp)
    yield from said.content.left_out(options)
    if role == "tool":
        kept = texts.tool_result(said.content.prose(options), options)
        if kept is None or said.text.startswith(_PRUNED):
            yield LeftOut("tool result")
            return
        yield Said(session, role, kept, origin, place, "tool-result", created_at, metadata=facts | _tool_facts(said))
        return
    if said.thinking and not options.thinking:
        yield LeftOut(THINKING)
    prose = said.content.prose(options)
    if said.thinking and options.thinking:
        prose = texts.joined([said.thinking, prose])
    if prose.strip():
        yield Said(session, role, prose, origin, place, created_at=created_at, metadata=facts)
    elif not said.calls and not said.broken:
        yield LeftOut("empty")
    for number, call in enumerate(said.calls):
        content = texts.tool_call(call.name or "tool", call.arguments)
        about = facts | _named(tool=call.name, call_id=call.id)
        yield Said(session, role, content, f"{origin}:{number}", place, "tool-call", created_at, metadata=about)


def session_facts(row: Mapping[str, Any], profile: str) -> dict[str, Any]:
    """Metadata of each turn of a session: short facts of its row."""
    return _named(
        model=row.get("model"),
        cwd=row.get("cwd"),
        git_branch=row.get("git_branch"),
        title=row.get("title"),
        platform=row.get("source"),
        profile=row.get("profile_name") or profile,
        parent_session=parent_of(row),
    )


def parent_of(row: Mapping[str, Any]) -> str | None:
    """The session that this one continues, branches from, or works for; None for one of its own."""
    parent = row.get("parent_session_id") or branched_from(row) or _config(row).get("_delegate_from")
    return parent if isinstance(parent, str) and parent else None


def branched_from(row: Mapping[str, Any]) -> str | None:
    """The session whose history a `/branch` copied into this one."""
    origin = _config(row).get("_branched_from")
    return origin if isinstance(origin, str) and origin else None


def is_delegate(row: Mapping[str, Any]) -> bool:
    """Whether a sub-agent's own session, which begins with its task and no copy of anything."""
    return row.get("source") == "subagent" or bool(_config(row).get("_delegate_from"))


def _config(row: Mapping[str, Any]) -> dict[str, Any]:
    value = row.get("model_config")
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return {}
    return value if isinstance(value, dict) else {}


def _content(value: Any) -> tuple[Content, str]:
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    if isinstance(value, str) and value.startswith(_JSON_PREFIX):
        try:
            return content_of(json.loads(value[len(_JSON_PREFIX) :])), ""
        except (ValueError, RecursionError):
            return Content(), "its content is not valid JSON"
    return content_of(value), ""


def _calls(value: Any) -> tuple[tuple[Call, ...], str]:
    if isinstance(value, str) and value.strip():
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return (), "its tool calls are not valid JSON"
    found = []
    for entry in value if isinstance(value, list) else [value]:
        if not isinstance(entry, dict):
            continue
        function = entry.get("function")
        function = function if isinstance(function, dict) else entry
        arguments = function.get("arguments", "")
        found.append(Call(_word(entry.get("id")), _word(function.get("name")), arguments))
    return tuple(found), ""


def _without_recall(content: Content) -> tuple[Content, bool]:
    pieces = tuple((kind, _RECALLED.sub("", what) if kind == "text" else what) for kind, what in content.pieces)
    return (Content(pieces, content.calls), True) if pieces != content.pieces else (content, False)


def _tool_facts(said: Message) -> dict[str, Any]:
    return _named(tool=said.tool, call_id=said.call_id)


def _named(**values: Any) -> dict[str, Any]:
    """Those that are texts and not blank, cut to what metadata may be."""
    return {name: value[:_FACT_CHARS] for name, value in values.items() if isinstance(value, str) and value.strip()}


_FACT_CHARS = 500


def _word(value: Any) -> str:
    return value if isinstance(value, str) else ""
