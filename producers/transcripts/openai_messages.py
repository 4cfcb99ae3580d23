"""One message of the chat-completions API: its text, calls and thinking. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from producers.events import Role
from producers.transcripts.tagged import Tool, split_calls, split_thinking, without_injected
from producers.transcripts.text import image_marker, joined
from producers.transcripts.values import object_at, text_at

_ROLES: dict[str, Role] = {
    "user": "user",
    "assistant": "assistant",
    "system": "system",
    "developer": "system",
    "tool": "tool",
    "function": "tool",
}
_TEXT_FIELDS = ("text", "refusal", "thinking")
_PART_NAME = re.compile(r"[a-z_]{1,40}")


@dataclass(frozen=True)
class Message:
    """What a message says, whether it stands in a request or came as a response."""

    role: Role
    text: str = ""
    thinking: str = ""
    calls: list[Tool] = field(default_factory=list)
    call_id: str | None = None
    """Of a result."""
    name: str | None = None
    """Of the tool, or of the speaker."""
    images: int = 0
    injected: int = 0

    @property
    def gist(self) -> list[Any]:
        """What makes it the same message on another line; an agent may shorten a result there, but not its call id."""
        if self.role == "tool" and self.call_id:
            return [self.role, self.call_id]
        return [self.role, self.text.strip(), [call.call_id or [call.name, call.text] for call in self.calls]]


def parse_message(value: Any) -> Message | str:
    """The message, or what is wrong with it."""
    if not isinstance(value, dict):
        return "a message is not an object"
    role = _ROLES.get(text_at(value, "role"))
    if role is None:
        return "a message has no known role"
    content = value.get("content")
    if not isinstance(content, (str, list)) and content is not None:
        return "a message's content is neither text nor a list"
    text, thinking, images = _content(content)
    text, injected = without_injected(text)
    calls = _calls(value)
    if role == "assistant":
        tagged, text = split_thinking(text)
        text, in_text = split_calls(text)
        calls += in_text
        thinking = joined([*(text_at(value, name) for name in ("reasoning_content", "reasoning")), thinking, tagged])
        text = joined([text, text_at(value, "refusal")])
    return Message(
        role=role,
        text=text,
        thinking=thinking,
        calls=calls,
        call_id=text_at(value, "tool_call_id") or None,
        name=text_at(value, "name") or None,
        images=images,
        injected=injected,
    )


def _content(content: str | list[Any] | None) -> tuple[str, str, int]:
    """(text with markers for what is none, thinking, number of images)."""
    if not isinstance(content, list):
        return content or "", "", 0
    shown: list[str] = []
    thinking: list[str] = []
    for part in content:
        if isinstance(part, str):
            shown.append(part)
        elif isinstance(part, dict):
            kind = part.get("type")
            text = joined(text_at(part, name) for name in _TEXT_FIELDS)
            if kind in ("thinking", "reasoning"):
                thinking.append(text)
            elif kind in ("image_url", "input_image", "image"):
                shown.append(image_marker())
            elif text:
                shown.append(text)
            elif isinstance(kind, str) and kind != "text" and _PART_NAME.fullmatch(kind):
                shown.append(f"[{kind} left out]")
    return joined(shown), joined(thinking), shown.count(image_marker())


def _calls(value: dict[str, Any]) -> list[Tool]:
    listed = value.get("tool_calls")
    calls = [call for call in listed if isinstance(call, dict)] if isinstance(listed, list) else []
    if isinstance(value.get("function_call"), dict):  # before there were several
        calls.append({"function": value["function_call"]})
    found = []
    for call in calls:
        what = object_at(call, "function") or object_at(call, "custom")
        body = what.get("arguments", what.get("input", ""))
        found.append(Tool(text_at(what, "name"), text_at(call, "id") or None, "" if body is None else body))
    return [call for call in found if call.name or call.body]
