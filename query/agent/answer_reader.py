"""The pieces of a model's answer out of what an OpenAI-compatible server sends, streamed or whole. Pure.

Servers differ: some send no [DONE], no usage, no empty line between events, a null delta, the text in parts, their
thoughts in a field of their own, an error in the middle, or one whole answer although a stream was asked for. All of
that is understood here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from query.agent.sse import LARGEST_EVENT, SseReader

DONE = "[DONE]"
THOUGHTS = ("reasoning_content", "reasoning", "thinking")
"""Fields that hold what the model thinks before it answers, as DeepSeek, vLLM and others call it."""
_BLANK = b"\xef\xbb\xbf \t\r\n"


@dataclass(frozen=True)
class Piece:
    """A piece of an answer; one that says nothing is still a sign of life."""

    text: str = ""
    thought: str = ""
    finish: str | None = None
    """Why the model stopped: stop, length, content_filter, …"""


class BrokenAnswer(Exception):
    """What was sent is no answer; the message says what is wrong with it, without quoting it."""


class ServerError(Exception):
    """The server says in an answer that it failed; the message is its own."""


class AnswerReader:
    """Feed it the bytes of a response's body as they come; it returns the pieces that they complete.

    Raises `BrokenAnswer` and `ServerError`.
    """

    def __init__(self) -> None:
        self._head = b""
        self._sse: SseReader | None = None
        self._whole: bytearray | None = None
        self._half = ""
        self.is_done = False
        """The server has said that nothing follows."""
        self.is_answer = False
        """Something that belongs to an answer has come."""
        self.is_ended = False
        """The answer's end was said: by [DONE], by why the model stopped, or by being one whole document."""

    def feed(self, data: bytes) -> list[Piece]:
        if self.is_done:
            return []
        if self._sse is None and self._whole is None:
            data = self._head + data
            first = data.lstrip(_BLANK)[:1]
            if not first:
                self._head = data
                return []
            # One JSON document begins with a brace; no line of an event stream does.
            self._sse, self._whole = (None, bytearray()) if first in b"{[" else (SseReader(), None)
        if self._sse is not None:
            try:
                return self._read_events(self._sse.feed(data))
            except ValueError as error:
                raise BrokenAnswer(str(error)) from None
        assert self._whole is not None
        self._whole += data
        if len(self._whole) > LARGEST_EVENT:
            raise BrokenAnswer(f"an answer of more than {LARGEST_EVENT:,} bytes")
        return []

    def close(self) -> list[Piece]:
        """The body is over."""
        if self._sse is not None:
            return self._read_events(self._sse.close())
        found = list(self._pieces_of(_parsed(bytes(self._whole)))) if self._whole else []
        self.is_ended = True  # what is cut is no JSON
        return found

    def _read_events(self, events: list[str]) -> list[Piece]:
        found: list[Piece] = []
        for data in events:
            for part in _documents(data):
                if part == DONE:
                    self.is_done = self.is_answer = self.is_ended = True
                    return found
                found += self._pieces_of(_parsed(part))
        return found

    def _pieces_of(self, found: Any) -> Iterator[Piece]:
        if not isinstance(found, dict):
            raise BrokenAnswer("JSON that is not an object")
        if found.get("error"):
            raise ServerError(said_error(found))
        choices = found.get("choices")
        if not isinstance(choices, list):
            return  # usage, or an event of the server's own
        self.is_answer = True
        for choice in choices[:1]:
            if not isinstance(choice, dict):
                raise BrokenAnswer("a choice that is not an object")
            said = choice.get("delta") or choice.get("message") or {}
            if not isinstance(said, dict):
                raise BrokenAnswer("a delta that is not an object")
            text = _text(said.get("content")) or _text(said.get("refusal")) or _text(choice.get("text"))
            thought = next((_text(said[name]) for name in THOUGHTS if said.get(name)), "")
            finish = choice.get("finish_reason")
            finish = finish if isinstance(finish, str) and finish else None
            self.is_ended = self.is_ended or finish is not None
            yield Piece(self._joined(text), thought, finish)

    def _joined(self, text: str) -> str:
        """`text` behind the half of a character that the piece before ended in: JSON can cut a surrogate pair."""
        text, self._half = self._half + text, ""
        if text and "\ud800" <= text[-1] <= "\udbff":
            text, self._half = text[:-1], text[-1]
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def said_error(found: Any) -> str:
    """What a server says of its error: {"error": {"message", "code"}}, {"error": "…"}, {"detail": "…"}, …"""
    error = found.get("error") or found.get("detail") or found.get("message") if isinstance(found, dict) else None
    if isinstance(error, dict):
        error = error.get("message") or error.get("code") or error.get("type")
    return error if isinstance(error, str) else ""


def _documents(data: str) -> list[str]:
    """The JSON documents of an event; several when a server sends no empty line between events."""
    if "\n" not in data.strip():
        return [data.strip()] if data.strip() else []
    try:
        json.loads(data)
    except (ValueError, RecursionError):
        return [line.strip() for line in data.split("\n") if line.strip()]
    return [data]


def _parsed(text: str | bytes) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):  # its message would quote what was sent
        raise BrokenAnswer(f"broken JSON ({len(text):,} characters)") from None


def _text(content: Any) -> str:
    """Of a content that is a text, or a list of parts."""
    if isinstance(content, list):
        return "".join(_text(part.get("text")) for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else ""
