"""ShareGPT: conversations as lists of {from, value}, among them the trajectories that Hermes writes. Does I/O.

There are no times and often no ids. A conversation without id is named by a digest of all of it, one whose id is a
plain number by that and what is said first, a message by a digest of conversation, position, role and content.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from producers.events import Role
from producers.transcripts.json_objects import read_records
from producers.transcripts.outline import outlines
from producers.transcripts.port import Bad, Item, Kind, LeftOut, ReadOptions, Said, Sample, State
from producers.transcripts.tagged import (
    Tool,
    parse_calls,
    split_calls,
    split_responses,
    split_thinking,
    with_thinking,
    without_injected,
)
from producers.transcripts.text import digest, tool_call, tool_result
from producers.transcripts.values import facts

_LISTS = ("conversations", "conversation")
_SPEAKERS: dict[str, tuple[Role, Kind]] = {
    **dict.fromkeys(("human", "user"), ("user", "prose")),
    **dict.fromkeys(("gpt", "assistant", "chatgpt", "bing", "bard", "model", "bot"), ("assistant", "prose")),
    **dict.fromkeys(("system", "developer"), ("system", "prose")),
    **dict.fromkeys(("tool", "observation", "function", "function_response", "tool_response"), ("tool", "tool-result")),
    **dict.fromkeys(("function_call", "tool_call"), ("assistant", "tool-call")),
}
"""The words that data sets use for who speaks."""
_FIRST_TURNS = 2


class ShareGPT:
    """Reads arrays and JSON Lines of such conversations."""

    name = "sharegpt"
    in_place = False

    def recognises(self, sample: Sample) -> bool:
        wanted = {f"{name}.{who}" for name in _LISTS for who in ("from", "role")}
        return any(not wanted.isdisjoint(names) for names in outlines(sample))

    def read(self, path: Path, options: ReadOptions, state: State | None) -> Iterator[Item]:
        return read_records(path, state, _is_record, lambda value, place: _conversation(value, place, options))


@dataclass(frozen=True)
class _Message:
    """One {from, value}, and what it belongs to."""

    session: str
    position: int
    place: str
    text: str
    model: Any

    def said(self, role: Role, content: str, part: int = 0, kind: Kind = "prose", tool: Tool | None = None) -> Said:
        where = (self.position, part) if part else self.position
        return Said(
            session=self.session,
            role=role,
            content=content,
            origin=digest(self.session, where, role, content if kind != "tool-result" else self.text),
            place=self.place,
            kind=kind,
            metadata=facts(tool=tool.name if tool else None, call_id=tool.call_id if tool else None, model=self.model),
        )


def _is_record(value: dict[str, Any]) -> bool:
    return any(isinstance(value.get(name), list) for name in _LISTS)


def _conversation(value: dict[str, Any], place: str, options: ReadOptions) -> Iterator[Item]:
    messages = next((value[name] for name in _LISTS if isinstance(value.get(name), list)), None)
    if messages is None:
        yield Bad(place, "has no list of conversations")
        return
    session = _session(value.get("id"), messages)
    for position, message in enumerate(messages):
        name, text = _read(message)
        if name is None or name not in _SPEAKERS:
            yield Bad(place, f"message {position + 1} has no known speaker")
        elif text is None:
            yield Bad(place, f"message {position + 1} has no text")
        else:
            one = _Message(session, position, place, text, value.get("model"))
            yield from _said(one, *_SPEAKERS[name], options)


def _session(given: Any, messages: list[Any]) -> str:
    if not isinstance(given, (str, int)) or isinstance(given, bool) or given == "":
        return digest("sharegpt", messages)
    if not str(given).removeprefix("-").isdecimal():
        return str(given)
    # Every export counts from 0 on. Only the first turns are taken, as the conversation may grow.
    said = [(name, text) for name, text in map(_read, messages) if name and not _is_system(name)]
    return f"{given}-{digest('sharegpt', said[:_FIRST_TURNS])}"


def _is_system(name: str) -> bool:
    return name in _SPEAKERS and _SPEAKERS[name][0] == "system"


def _read(message: Any) -> tuple[str | None, str | None]:
    """(who speaks, what they say) under the names that data sets use."""
    if not isinstance(message, dict):
        return None, None
    name, text = message.get("from", message.get("role")), message.get("value", message.get("content"))
    return (name.lower() if isinstance(name, str) else None), (
        "" if text is None else text if isinstance(text, str) else None
    )


def _said(message: _Message, role: Role, kind: Kind, options: ReadOptions) -> Iterator[Item]:
    if kind == "tool-result":
        for part, tool in enumerate(split_responses(message.text)):
            kept = tool_result(tool.text, options)
            yield message.said(role, kept, part, kind, tool) if kept else LeftOut("tool result")
        return
    if role == "system":
        yield LeftOut("system prompt")
        return
    prose, injected = without_injected(message.text)
    calls: list[Tool] = []
    thought = False
    if kind == "tool-call":
        prose, calls = "", parse_calls(message.text) if message.text.strip() else []
    elif role == "assistant":
        thinking, rest = split_thinking(prose)
        prose, calls = split_calls(rest)
        prose, thought = with_thinking(thinking, prose, options)
    yield from [LeftOut("injected context")] * injected
    if thought:
        yield LeftOut("thinking")
    if prose.strip():
        yield message.said(role, prose)
    for part, call in enumerate(calls, 1):
        yield message.said(role, tool_call(call.name, call.body), part, "tool-call", call)
    if not (prose.strip() or calls or injected or thought):
        yield LeftOut("empty")
