"""What agents put between tags inside a text: thinking, tool calls and results, and context that was injected. Pure."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from producers.transcripts.port import ReadOptions
from producers.transcripts.text import joined

_INJECTED = re.compile(r"<(recalled-memory|memory-context|system-reminder)\b[^>]*>.*?</\1\s*>", re.DOTALL)
"""Ours, that of Hermes, and that of Claude Code, which proxies log too."""
_THINK = re.compile(r"\s*<(think|thinking|reasoning)>(.*?)(?:</\1>|\Z)", re.DOTALL)
_SUMMARIES = ("[CONTEXT COMPACTION", "This session is being continued from a previous conversation")
"""How Hermes and Claude Code begin the message that stands for what was compacted."""
_CALL = re.compile(r"<tool_call>(.*?)</tool_call>", re.DOTALL)
_RESPONSE = re.compile(r"<tool_response>(.*?)</tool_response>", re.DOTALL)


@dataclass(frozen=True)
class Tool:
    """A call, whose `body` are its arguments, or a result."""

    name: str
    call_id: str | None
    body: Any

    @property
    def text(self) -> str:
        """Of a result."""
        if isinstance(self.body, str):
            return self.body
        return json.dumps(self.body, ensure_ascii=False, separators=(",", ":"))


def without_injected(text: str) -> tuple[str, int]:
    """The text without injected context, and how many pieces of that there were."""
    if "</" not in text:
        return text, 0
    kept, count = _INJECTED.subn("", text)
    return (kept.strip(), count) if count else (text, 0)


def is_summary(text: str) -> bool:
    """Whether a message is a summary of earlier ones that an agent put in their place."""
    return text.lstrip().startswith(_SUMMARIES)


def split_thinking(text: str) -> tuple[str, str]:
    """(thinking, the rest) of an assistant's text.

    Thinking opens a message and may be cut off; tags further on are something that is talked about.
    """
    found = _THINK.match(text)
    return (found.group(2).strip(), text[found.end() :].strip("\n")) if found else ("", text)


def with_thinking(thinking: str, prose: str, options: ReadOptions) -> tuple[str, bool]:
    """The prose behind its thinking, and whether that is left out; with no prose before it, it leaves no marker."""
    if options.thinking:
        return joined([thinking, prose]), False
    return prose, bool(thinking.strip())


def split_calls(text: str) -> tuple[str, list[Tool]]:
    """The prose around tool calls, and the calls."""
    calls = [_tool(body, "arguments") for body in _CALL.findall(text)]
    return (joined(_CALL.split(text)[::2]), calls) if calls else (text, [])


def split_responses(text: str) -> list[Tool]:
    """The results in a text; the text itself when it marks none."""
    return [_tool(body, "content") for body in _RESPONSE.findall(text)] or [Tool("", None, text)]


def parse_calls(text: str) -> list[Tool]:
    """The calls in a text that is nothing else: one JSON object, or a list of them."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    values = value if isinstance(value, list) and value else [value]
    if all(isinstance(one, dict) and isinstance(one.get("name"), str) for one in values):
        return [_read(one, "arguments") for one in values]
    return [Tool("", None, text.strip())]


def _tool(body: str, key: str) -> Tool:
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return Tool("", None, body.strip())
    return _read(value, key) if isinstance(value, dict) and key in value else Tool("", None, body.strip())


def _read(value: dict[str, Any], key: str) -> Tool:
    name, call_id = value.get("name"), value.get("tool_call_id") or value.get("id")
    return Tool(
        name if isinstance(name, str) else "",
        call_id if isinstance(call_id, str) else None,
        value.get(key, ""),
    )
