"""What a message's content says, whether it is a text or a list of typed blocks; for formats near OpenAI's. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from producers.transcripts.port import LeftOut, ReadOptions
from producers.transcripts.text import THINKING_MARKER, image_marker, joined

THINKING = "thinking"
_TEXT_TYPES = frozenset({"text", "input_text", "output_text", "refusal"})
_THINKING_TYPES = frozenset({"thinking", "redacted_thinking", "reasoning", "reasoning_content"})
_TOOL_TYPES = frozenset({"tool_use", "tool_call", "tool_call_chunk", "function_call", "server_tool_call"})
"""Calls; whoever has the whole message knows the better place where they stand."""
_MEDIA_TYPES = frozenset({"audio", "input_audio", "video", "file", "input_file", "document", "media"})


@dataclass(frozen=True)
class Content:
    """The pieces of a content in their order, before the person's options."""

    pieces: tuple[tuple[str, str], ...] = ()
    """(`text` | `thinking` | `image`, what it says); an image says its media type or nothing."""
    calls: tuple[dict[str, Any], ...] = field(default=(), repr=False)

    @property
    def text(self) -> str:
        """The text alone, which no option changes."""
        return joined(what for kind, what in self.pieces if kind == "text")

    def prose(self, options: ReadOptions) -> str:
        """What is kept of it; empty where only thinking was said and thinking is off."""
        kept = [kind for kind, what in self.pieces if kind == "image" or (kind == "text" and what.strip())]
        if not kept and not options.thinking:
            return ""
        return joined(_kept(kind, what, options) for kind, what in self.pieces)

    def left_out(self, options: ReadOptions) -> Iterable[LeftOut]:
        """One for each piece that is off."""
        for kind, _ in self.pieces:
            if kind == "image":
                yield LeftOut("image")
            elif kind == THINKING and not options.thinking:
                yield LeftOut(THINKING)


def content_of(value: Any) -> Content:
    """Read any content: a text, a list of texts and blocks, one block, or nothing."""
    if isinstance(value, dict) and isinstance(value.get("content"), (list, str)):
        value = value["content"]  # a tool's envelope around blocks
    blocks = value if isinstance(value, list) else [value]
    pieces: list[tuple[str, str]] = []
    calls: list[dict[str, Any]] = []
    for block in blocks:
        if isinstance(block, dict) and _type(block) in _TOOL_TYPES:
            calls.append(block)
        elif block is not None:
            pieces.append(_piece(block))
    return Content(tuple(pieces), tuple(calls))


def _piece(block: Any) -> tuple[str, str]:
    if isinstance(block, str):
        return "text", block
    if not isinstance(block, dict):
        return "text", json.dumps(block, ensure_ascii=False)
    kind = _type(block)
    if kind in _THINKING_TYPES or kind.endswith("_reasoning"):
        return THINKING, _first_text(block, "thinking", "reasoning", "text", "summary")
    if "image" in kind:
        return "image", _media_type(block)
    if kind in _MEDIA_TYPES:
        return "text", f"[{kind} left out]"
    if kind in _TEXT_TYPES or isinstance(block.get("text"), str):
        return "text", _first_text(block, "text", "refusal")
    return "text", json.dumps(block, ensure_ascii=False, separators=(",", ":"))


def _type(block: dict[str, Any]) -> str:
    kind = block.get("type")
    return kind if isinstance(kind, str) else ""


def _first_text(block: dict[str, Any], *names: str) -> str:
    return next((value for name in names if isinstance(value := block.get(name), str)), "")


def _media_type(block: dict[str, Any]) -> str:
    """As the block or its data URL names it; never the data."""
    source = block.get("source")
    for holder in (block, source if isinstance(source, dict) else {}):
        for name in ("media_type", "mime_type", "mimeType"):
            if isinstance(value := holder.get(name), str):
                return value[:_MEDIA_TYPE_CHARS]
    url = block.get("image_url", block.get("url"))
    url = url.get("url") if isinstance(url, dict) else url
    if isinstance(url, str) and url.startswith("data:"):
        return url[5 : 5 + _MEDIA_TYPE_CHARS].split(";")[0].split(",")[0]
    return ""


_MEDIA_TYPE_CHARS = 100
"""The longest registered name has 73."""


def _kept(kind: str, what: str, options: ReadOptions) -> str:
    if kind == "image":
        return image_marker(what or None)
    if kind == THINKING and not options.thinking:
        return THINKING_MARKER
    return what
