"""Chat-completions requests as JSON Lines: logged calls, request/response pairs, fine-tuning files. Does I/O.

An agent's log repeats the whole conversation on each line. Each message is named by a digest of itself and of all that
was said before it, so that it is the same on every line and two conversations part where they differ. System prompts
are left out of this, too: they often change from call to call, by the time or by what was recalled.

What happens to conversations that begin alike: without an id of their own they are one session, in which each branch
follows the other. A log whose earlier messages were replaced, as compaction does, goes on as a new branch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from producers.transcripts.json_objects import read_records
from producers.transcripts.openai_messages import Message, parse_message
from producers.transcripts.outline import outlines
from producers.transcripts.port import Bad, Item, LeftOut, ReadOptions, Said, Sample, State
from producers.transcripts.tagged import Tool, is_summary, with_thinking
from producers.transcripts.text import digest, moment, tool_call, tool_result
from producers.transcripts.values import facts, object_at, text_at

_SESSION_NAMES = ("session_id", "conversation_id", "thread_id")
_WRAPPERS = ("request", "body", "input")
"""Under which loggers and the batch API keep the request."""
_OTHER_FORMATS = {"started_at", "session_key", "agents", "messages.type", "turn_index"}
"""Names in formats that have `messages` with roles too."""
MAX_KNOWN = 4096
"""Digests remembered of each sort: so many conversations may alternate in a log. One that is forgotten is said again,
with the same origins."""
KNOWN_DIGITS = 16
"""Of a digest: 64 bits, so that a mark stays small; two messages share them once in 10^11 logs."""


class OpenAI:
    """Reads what a client sent, and what it got where that was logged too."""

    name = "openai"
    in_place = False

    def recognises(self, sample: Sample) -> bool:
        wanted = {"messages.role", "request.body.messages.role", *(f"{name}.messages.role" for name in _WRAPPERS)}
        return any(names & wanted and not names & _OTHER_FORMATS for names in outlines(sample))

    def read(self, path: Path, options: ReadOptions, state: State | None) -> Iterator[Item]:
        log = _Log(options, state)
        return read_records(path, state, lambda value: _messages(value) is not None, log.items, log.state)


class _Recent:
    """The digests that were met last."""

    def __init__(self, digests: list[str]) -> None:
        self._order = dict.fromkeys(digests)

    def __contains__(self, one: str) -> bool:
        return one in self._order

    def add(self, one: str) -> None:
        self._order.pop(one, None)
        self._order[one] = None
        if len(self._order) > MAX_KNOWN:
            del self._order[next(iter(self._order))]

    def oldest_first(self) -> list[str]:
        return list(self._order)


class _Log:
    """What a log said so far, as far as it is needed to tell a repeated message.

    A digest covers all before it: a line goes on behind its last message that is known. The last messages of lines are
    remembered apart, so that long conversations do not crowd out others.
    """

    def __init__(self, options: ReadOptions, state: State | None) -> None:
        self._options = options
        self._last = _Recent(state["last"] if state else [])
        self._inner = _Recent(state["inner"] if state else [])

    def state(self) -> State:
        return {"last": self._last.oldest_first(), "inner": self._inner.oldest_first()}

    def items(self, value: dict[str, Any], place: str) -> Iterator[Item]:
        """What a record adds."""
        raw = _messages(value)
        if raw is None:
            yield Bad(place, "has no list of messages")
            return
        reply, replied_at = _reply(value)
        parsed = [parse_message(one) for one in [*raw, *reply[:1]]]
        given = _session_name(value)
        said = [one for one in parsed if not _is_prompt(one)]
        chain = _chain(said, given or "")
        start = next((i + 1 for i in reversed(range(len(chain))) if self._knows(chain[i])), 0)
        session = given or _session_of(said, chain)
        model = next((name for holder in _requests(value) if (name := text_at(holder, "model"))), None)
        within = _Record(session, place, model, _call_names(parsed), self._options)
        yield from [LeftOut("system prompt")] * (len(parsed) - len(said))
        yield from [LeftOut("repeated prefix")] * start
        for message, origin in list(zip(said, chain, strict=True))[start:]:
            is_reply = bool(reply) and message is parsed[-1]
            yield from within.items(message, origin, replied_at if is_reply else None)
        yield from [LeftOut("other choice")] * len(reply[1:])
        for one in chain:
            self._inner.add(one[:KNOWN_DIGITS])
        if chain:
            self._last.add(chain[-1][:KNOWN_DIGITS])

    def _knows(self, one: str) -> bool:
        return one[:KNOWN_DIGITS] in self._last or one[:KNOWN_DIGITS] in self._inner


@dataclass(frozen=True)
class _Record:
    """What the messages of one record share."""

    session: str
    place: str
    model: str | None
    call_names: dict[str, str]
    options: ReadOptions

    def items(self, message: Message | str, origin: str, created_at: datetime | None = None) -> Iterator[Item]:
        """What one message says."""
        if isinstance(message, str):
            yield Bad(self.place, message)
            return
        yield from [LeftOut("injected context")] * message.injected
        yield from [LeftOut("image")] * message.images
        if message.role == "tool":
            kept = tool_result(message.text, self.options)
            yield self._said(message, kept, origin, created_at) if kept else LeftOut("tool result")
            return
        if is_summary(message.text):
            yield LeftOut("compaction summary")
            return
        prose, left_out = with_thinking(message.thinking, message.text, self.options)
        if left_out:
            yield LeftOut("thinking")
        if prose.strip():
            yield self._said(message, prose, origin, created_at)
        for number, call in enumerate(message.calls):
            yield self._said(message, tool_call(call.name, call.body), f"{origin}/{number}", created_at, call)
        if not (prose.strip() or message.calls or message.injected or left_out):
            yield LeftOut("empty")

    def _said(
        self, message: Message, content: str, origin: str, created_at: datetime | None, call: Tool | None = None
    ) -> Said:
        is_result = message.role == "tool"
        call_id = call.call_id if call else message.call_id
        name = call.name if call else message.name or self.call_names.get(call_id or "")
        return Said(
            session=self.session,
            role=message.role,
            content=content,
            origin=origin,
            place=self.place,
            kind="tool-call" if call else "tool-result" if is_result else "prose",
            created_at=created_at,
            speaker=message.name if message.role in ("user", "assistant") else None,
            metadata=facts(tool=name if call or is_result else None, call_id=call_id, model=self.model),
        )


def _messages(value: dict[str, Any]) -> list[Any] | None:
    for holder in _requests(value):
        found = holder.get("messages")
        if isinstance(found, list):
            return found
    return None


def _requests(value: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Where the request may be."""
    yield value
    for wrapper in _WRAPPERS:
        wrapped = object_at(value, wrapper)
        yield wrapped
        yield object_at(wrapped, "body")


def _reply(value: dict[str, Any]) -> tuple[list[Any], datetime | None]:
    """The messages to choose from that came as the response, and when."""
    response = object_at(value, "response")
    for holder in (response, object_at(response, "body"), value):
        choices = holder.get("choices")
        if isinstance(choices, list):
            messages = [object_at(one, "message") for one in choices if isinstance(one, dict)]
            return [one for one in messages if one], moment(holder.get("created"))
    return ([response] if "role" in response else []), None


def _session_name(value: dict[str, Any]) -> str | None:
    for holder in (value, object_at(value, "metadata")):
        for name in _SESSION_NAMES:
            if found := text_at(holder, name):
                return found
    return None


def _session_of(said: list[Message | str], chain: list[str]) -> str:
    """By its beginning up to the first user message, or all of it when there is none."""
    users = (digest for digest, one in zip(chain, said, strict=True) if isinstance(one, Message) and one.role == "user")
    return next(users, chain[-1] if chain else "")


def _chain(messages: list[Message | str], seed: str) -> list[str]:
    """For each message, a digest of all up to it."""
    chain = []
    for message in messages:
        seed = digest(seed, message.gist if isinstance(message, Message) else None)
        chain.append(seed)
    return chain


def _is_prompt(message: Message | str) -> bool:
    return isinstance(message, Message) and message.role == "system"


def _call_names(messages: list[Message | str]) -> dict[str, str]:
    return {
        call.call_id: call.name
        for message in messages
        if isinstance(message, Message)
        for call in message.calls
        if call.call_id
    }
