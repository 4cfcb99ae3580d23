"""Pieces of text that every reader makes in the same way. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from producers.transcripts.port import ReadOptions

THINKING_MARKER = "[thinking left out]"


def image_marker(media_type: str | None = None) -> str:
    """What stands for an image."""
    return f"[image left out: {media_type}]" if media_type else "[image left out]"


def joined(parts: Iterable[str]) -> str:
    """Parts of one turn as paragraphs; blank ones leave no trace."""
    return "\n\n".join(part.strip("\n") for part in parts if part.strip())


def tool_call(name: str, arguments: Any) -> str:
    """A call as it is stored: the name, then the arguments as compact JSON, or as they are when they are text."""
    try:
        text = (
            arguments
            if isinstance(arguments, str)
            else json.dumps(arguments, ensure_ascii=False, separators=(",", ":"))
        )
    except RecursionError:  # what could be parsed can be too deep to be written from further down the stack
        text = "[arguments nested too deeply]"
    return f"{name} {text}".strip()


def tool_result(text: str, options: ReadOptions) -> str | None:
    """A result under the policy; None when it is skipped or blank."""
    if options.tool_results == "skip" or not text.strip():
        return None
    if options.tool_results == "full" or len(text) <= options.tool_result_chars:
        return text
    left = len(text) - options.tool_result_chars
    return f"{text[: options.tool_result_chars]}\n[{left:,} more characters left out]"


def digest(*parts: Any) -> str:
    """32 hex digits of the parts, length-prefixed by JSON; for origins and sessions of formats without ids."""
    text = json.dumps(parts, ensure_ascii=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def moment(value: Any) -> datetime | None:
    """A time as formats write it: ISO 8601, or seconds or milliseconds since 1970; None for all else.

    A time without a zone is taken as UTC.
    """
    try:
        if isinstance(value, str):
            parsed = datetime.fromisoformat(value)
            return (parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).astimezone(UTC)
        if isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0:
            return datetime.fromtimestamp(value / 1000 if value > _MILLISECONDS_FROM else value, UTC)
    except (ValueError, OverflowError, OSError):
        pass
    return None


_MILLISECONDS_FROM = 100_000_000_000
"""As seconds that is the year 5138, as milliseconds 1973."""
