"""Letta: an agent file (`.af`), one JSON document with the messages of its agents. Does I/O.

Its ids (`agent-0`, `message-7`) only count within the file, so that an agent is known by its name and first message,
and a message by its time, words, and how often that was said.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from producers.transcripts import text as texts
from producers.transcripts.contents import THINKING, Content, content_of
from producers.transcripts.documents import document, marked
from producers.transcripts.port import Bad, Item, LeftOut, ReadOptions, Said, Sample, State, Unreadable

_REPLY = "send_message"
"""The tool by which older kinds of agents speak; what they write beside it is thinking."""
_PLAIN_AGENT = "letta_v1_agent"
"""The kind whose text is what it says."""
_INJECTED = frozenset({"heartbeat", "system_alert", "login", "memory_pressure", "summary"})
"""What Letta itself writes with role user, as JSON with a type."""
_KEYS = (b'"agents"', b'"messages"', b'"agent_type"', b'"in_context_message_ids"', b'"llm_config"', b'"memory_blocks"')
_KEYS_ENOUGH = 3


class Letta:
    """Reads agent files."""

    name = "letta"
    in_place = False

    def recognises(self, sample: Sample) -> bool:
        """By its keys; a long system prompt may keep some of them out of the sample."""
        known = sum(key in sample.head for key in _KEYS)
        return sample.head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] == b"{" and known >= _KEYS_ENOUGH

    def read(self, path: Path, options: ReadOptions, state: State | None) -> Iterator[Item]:
        whole = document(path)
        agents = whole.get("agents") if isinstance(whole, dict) else None
        if agents is None and isinstance(whole, dict) and isinstance(whole.get("messages"), list):
            agents = [whole]  # before groups of agents, the document was the agent
        if not isinstance(agents, list):
            raise Unreadable("not a Letta agent file: it has no agents")
        yield from marked(_items(agents, options), path, state)


def _items(agents: list[Any], options: ReadOptions) -> Iterator[Said | Bad | LeftOut]:
    for number, agent in enumerate(agents, 1):
        place = f"agent {number}"
        if not isinstance(agent, dict) or not isinstance(agent.get("messages"), list):
            yield Bad(place, "an agent without messages")
            continue
        try:
            reading = _Agent(agent, place, options)
        except RecursionError:
            yield Bad(place, "nested too deeply")
            continue
        for position, entry in enumerate(agent["messages"], 1):
            where = f"{place}, message {position}"
            if not isinstance(entry, dict):
                yield Bad(where, "a message that is no object")
                continue
            try:
                yield from list(reading.items(_Message(entry), where))
            except RecursionError:
                yield Bad(where, "nested too deeply")


@dataclass(frozen=True)
class _Message:
    """One message of an agent."""

    fields: dict[str, Any]

    @cached_property
    def content(self) -> Content:
        own = self.fields.get("content")
        return content_of(self.fields.get("text") if own is None else own)  # `text` in the first versions

    @cached_property
    def calls(self) -> list[tuple[str, str, Any]]:
        """Id, name and arguments of each."""
        raw = self.fields.get("tool_calls")
        found = []
        for call in raw if isinstance(raw, list) else []:
            function = call.get("function") if isinstance(call, dict) else None
            if isinstance(function, dict):
                found.append((_word(call.get("id")), _word(function.get("name")), function.get("arguments", "")))
        return found

    @cached_property
    def identity(self) -> str:
        fields = self.fields
        about = [fields.get(key) for key in ("role", "created_at", "tool_call_id")]
        return texts.digest(*about, self.content.text, self.calls)


class _Agent:
    """One agent's conversation."""

    def __init__(self, agent: dict[str, Any], place: str, options: ReadOptions) -> None:
        first = next((entry for entry in agent["messages"] if isinstance(entry, dict)), {})
        name = _word(agent.get("name"))
        self._session = f"letta-{texts.digest(name, _Message(first).identity)}"
        config = agent.get("llm_config")
        model = config.get("model") if isinstance(config, dict) else None
        self._facts = _named(agent=name, model=model)
        self._options = options
        self._thinks_aloud = agent.get("agent_type") not in (None, _PLAIN_AGENT)
        self._times: Counter[str] = Counter()
        self._replies: set[str] = set()
        """Ids of the calls that were replies: their results say only that they were sent."""

    def items(self, message: _Message, place: str) -> Iterator[Said | LeftOut]:
        self._times[message.identity] += 1
        origin = f"{self._session}:{message.identity}:{self._times[message.identity]}"
        role = message.fields.get("role")
        yield from message.content.left_out(self._options)
        if role == "user":
            yield from self._from_user(message, origin, place)
        elif role in ("assistant", "approval"):
            yield from self._from_agent(message, origin, place)
        elif role in ("tool", "function"):
            yield from self._from_tool(message, origin, place)
        else:
            yield LeftOut("system prompt" if role == "system" else "unknown role")

    def _from_user(self, message: _Message, origin: str, place: str) -> Iterator[Said | LeftOut]:
        prose = message.content.prose(self._options)
        envelope = _object(message.content.text)
        kind = _word(envelope.get("type"))
        if kind in _INJECTED:
            yield LeftOut("injected context")
            return
        if kind == "user_message" and isinstance(envelope.get("message"), str):
            prose = prose.replace(message.content.text.strip("\n"), envelope["message"], 1)
        if not prose.strip():
            yield LeftOut("empty")
            return
        speaker = _word(message.fields.get("name")) or None
        created_at = texts.moment(message.fields.get("created_at"))
        yield Said(
            self._session, "user", prose, origin, place, created_at=created_at, speaker=speaker, metadata=self._facts
        )

    def _from_agent(self, message: _Message, origin: str, place: str) -> Iterator[Said | LeftOut]:
        created_at = texts.moment(message.fields.get("created_at"))
        prose = message.content.prose(self._options)
        if message.calls and self._thinks_aloud and prose and not self._options.thinking:
            yield LeftOut(THINKING)
            prose = ""
        replies, calls = [], []
        for number, call in enumerate(message.calls):
            said = _reply(call)
            if said is None:
                calls.append((number, call))
            else:
                replies.append(said)
                self._replies.add(call[0])
        prose = texts.joined([prose, *replies])
        if prose:
            yield Said(self._session, "assistant", prose, origin, place, created_at=created_at, metadata=self._facts)
        elif not calls:
            yield LeftOut("empty")
        for number, (call_id, name, arguments) in calls:
            facts = self._facts | _named(tool=name, call_id=call_id)
            content = texts.tool_call(name or "tool", arguments)
            part = f"{origin}:{number}"
            yield Said(self._session, "assistant", content, part, place, "tool-call", created_at, metadata=facts)

    def _from_tool(self, message: _Message, origin: str, place: str) -> Iterator[Said | LeftOut]:
        call_id = _word(message.fields.get("tool_call_id"))
        if call_id and call_id in self._replies:
            yield LeftOut("delivery receipt")
            return
        kept = texts.tool_result(message.content.prose(self._options), self._options)
        if kept is None:
            yield LeftOut("tool result")
            return
        facts = self._facts | _named(tool=message.fields.get("name"), call_id=call_id)
        created_at = texts.moment(message.fields.get("created_at"))
        yield Said(self._session, "tool", kept, origin, place, "tool-result", created_at, metadata=facts)


def _reply(call: tuple[str, str, Any]) -> str | None:
    """What a call of `send_message` says; None for every other, and where it cannot be read."""
    _, name, arguments = call
    if name != _REPLY:
        return None
    arguments = arguments if isinstance(arguments, dict) else _object(arguments)
    said = arguments.get("message")
    return said if isinstance(said, str) else None


def _object(text: Any) -> dict[str, Any]:
    """The JSON object that a text is; empty for all else."""
    if not isinstance(text, str) or not text.lstrip().startswith("{"):
        return {}
    try:
        value = json.loads(text, strict=False)  # models write line feeds into their JSON as they are
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _named(**values: Any) -> dict[str, Any]:
    return {name: value[:_FACT_CHARS] for name, value in values.items() if isinstance(value, str) and value.strip()}


_FACT_CHARS = 500


def _word(value: Any) -> str:
    return value if isinstance(value, str) else ""
