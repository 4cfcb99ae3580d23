"""A LangChain message, as `messages_to_dict`, `dumps` and LangGraph write it, and what it says. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from producers.events import Role
from producers.transcripts import text as texts
from producers.transcripts.contents import Content, content_of
from producers.transcripts.port import Bad, LeftOut, ReadOptions, Said

_ROLES: dict[str, Role] = {"human": "user", "user": "user", "ai": "assistant", "assistant": "assistant"}
_ROLES |= {"tool": "tool", "function": "tool"}
_CLASSES = {"Human": "human", "AI": "ai", "Tool": "tool", "Function": "function", "System": "system", "Chat": "chat"}
"""A class is one of these, then `Message` or `MessageChunk`."""
_TYPES = frozenset({*_CLASSES.values(), "developer", "remove"})
_MAX_DEPTH = 30
"""Conversations stand near the top of a document."""


@dataclass(frozen=True)
class Message:
    """A message of any of the shapes."""

    type: str
    fields: dict[str, Any]

    @cached_property
    def content(self) -> Content:
        return content_of(self.fields.get("content"))

    @property
    def id(self) -> str:
        """Empty where it has none; `run-…` is LangChain's own word for none, but as unique as others."""
        value = self.fields.get("id")
        return value if isinstance(value, str) else ""

    @property
    def role(self) -> Role | None:
        kind = self.fields.get("role") if self.type == "chat" else self.type
        return _ROLES.get(kind.lower()) if isinstance(kind, str) else None

    @cached_property
    def calls(self) -> list[tuple[str, str, Any]]:
        """Id, name, arguments of each: of the message, else as the provider sent them, else those between its text."""
        more = self.fields.get("additional_kwargs")
        more = more if isinstance(more, dict) else {}
        own = [*_listed(self.fields.get("tool_calls")), *_listed(self.fields.get("invalid_tool_calls"))]
        raw = own or _listed(more.get("tool_calls")) or _listed([more.get("function_call")]) or list(self.content.calls)
        return [_call(one) for one in raw]

    @cached_property
    def identity(self) -> str:
        """Of what it says."""
        return texts.digest(self.role, self.content.text, self.calls, self.fields.get("tool_call_id"))


def message(value: Any) -> Message | None:
    """Read one; None where the value is no message."""
    if not isinstance(value, dict):
        return None
    kind, data = value.get("type"), value.get("data")
    if isinstance(kind, str) and isinstance(data, dict):
        kind = _type_of_class(kind) or kind
        return Message(kind, data) if kind in _TYPES and "content" in data else None
    name, data = value.get("id"), value.get("kwargs")
    if kind == "constructor" and isinstance(name, list) and name and isinstance(data, dict):
        kind = _type_of_class(name[-1])
        return Message(kind, data) if kind else None
    return None


def conversations(value: Any, depth: int = 0) -> Iterator[list[Any]]:
    """Each list in the value that holds a message; a list of a prompt, a memory or a state counts as well."""
    if depth > _MAX_DEPTH:
        return
    if isinstance(value, list) and any(message(entry) for entry in value):
        yield value
    elif isinstance(value, list):
        for entry in value:
            yield from conversations(entry, depth + 1)
    elif isinstance(value, dict):
        if message(value):
            yield [value]
            return
        for entry in value.values():
            yield from conversations(entry, depth + 1)


@dataclass(frozen=True)
class Conversation:
    """Where messages belong, and how their origins and places begin."""

    session: str
    scope: str
    place: str
    metadata: dict[str, Any]

    def items(self, entries: Iterable[Any], options: ReadOptions) -> Iterator[Said | Bad | LeftOut]:
        """What they say. A message with an id is known by it, one without by its words and their how-manieth time."""
        times: Counter[str] = Counter()
        for number, entry in enumerate(entries, 1):
            place = f"{self.place}, message {number}"
            try:
                found = message(entry)
                if found is None:
                    yield Bad(place, "not a LangChain message")
                    continue
                times[found.identity] += 1
                own = found.id or f"{found.identity}:{times[found.identity]}"
                yield from list(self._of_one(found, f"{self.scope}:{own}", place, options))
            except RecursionError:
                yield Bad(place, "nested too deeply")

    def _of_one(self, found: Message, origin: str, place: str, options: ReadOptions) -> Iterator[Said | LeftOut]:
        role = found.role
        if role is None:
            yield LeftOut("system prompt" if found.type in ("system", "developer") else "unknown role")
            return
        facts = self.metadata | _facts(found)
        prose = found.content.prose(options)
        yield from found.content.left_out(options)
        if role == "tool":
            kept = texts.tool_result(prose, options)
            if kept is None:
                yield LeftOut("tool result")
            else:
                yield Said(self.session, role, kept, origin, place, "tool-result", metadata=facts)
            return
        if prose.strip():
            name = found.fields.get("name")
            speaker = name if isinstance(name, str) and name.strip() else None
            yield Said(self.session, role, prose, origin, place, speaker=speaker, metadata=facts)
        elif not found.calls:
            yield LeftOut("empty")
        for number, (call_id, name, arguments) in enumerate(found.calls):
            about = facts | named(tool=name, call_id=call_id)
            content = texts.tool_call(name or "tool", arguments)
            yield Said(self.session, role, content, f"{origin}:{number}", place, "tool-call", metadata=about)


def session_of(entries: list[Any]) -> str:
    """For formats without an id of the conversation: a digest of its beginning, up to the first that is no prompt."""
    beginning = []
    for entry in entries:
        if found := message(entry):
            beginning.append((found.type, found.id, found.identity))
            if found.role is not None:
                break
    return texts.digest("langchain", beginning)


def named(**values: Any) -> dict[str, Any]:
    """Those that are texts and not blank, cut to what metadata may be."""
    return {name: value[:_FACT_CHARS] for name, value in values.items() if isinstance(value, str) and value.strip()}


_FACT_CHARS = 500


def _facts(found: Message) -> dict[str, Any]:
    about = found.fields.get("response_metadata")
    about = about if isinstance(about, dict) else {}
    facts = named(model=about.get("model_name") or about.get("model"))
    if found.role == "tool":
        facts |= named(tool=found.fields.get("name"), call_id=found.fields.get("tool_call_id"))
    return facts


def _type_of_class(name: Any) -> str:
    """`human` of HumanMessage; empty for every class that is no message."""
    if not isinstance(name, str):
        return ""
    short = name.removesuffix("Chunk")
    return _CLASSES.get(short.removesuffix("Message"), "") if short.endswith("Message") else ""


def _listed(value: Any) -> list[dict[str, Any]]:
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def _call(raw: dict[str, Any]) -> tuple[str, str, Any]:
    """LangChain says args, providers say input, arguments, or both in a function."""
    function = raw.get("function")
    function = function if isinstance(function, dict) else raw
    arguments = next((function[key] for key in ("args", "input", "arguments") if function.get(key) is not None), "")
    identifier, name = raw.get("id"), function.get("name")
    return (
        identifier if isinstance(identifier, str) else "",
        name if isinstance(name, str) else "",
        arguments,
    )
