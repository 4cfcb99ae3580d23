"""The ChatGPT export: an array of conversations, each a tree of messages of which one branch is shown. Does I/O."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from producers.events import Role
from producers.transcripts.json_objects import read_records
from producers.transcripts.outline import outlines
from producers.transcripts.port import Bad, Item, LeftOut, ReadOptions, Said, Sample, State
from producers.transcripts.text import digest, image_marker, joined, moment, tool_call, tool_result
from producers.transcripts.values import facts, object_at, text_at

_ROLES: dict[str, Role] = {"user": "user", "assistant": "assistant", "system": "system", "tool": "tool"}
_BESIDE_MAPPING = {"title", "create_time", "current_node", "conversation_id", "moderation_results"}
_INJECTED = {"user_editable_context", "model_editable_context"}
"""Custom instructions and memories, put before each conversation."""
_THINKING = {"thoughts", "reasoning_recap"}
_THINKING_TOOL = "a8km123"
"""As which the first reasoning models wrote down a summary of their thinking; ChatGPT shows it as that."""
_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_TEXT_FIELDS = ("name", "title", "url", "text", "result", "summary", "content", "output_str")
"""Of content that has no parts: code, execution_output, tether_quote, system_error, thoughts and the like."""
_PART_NAME = re.compile(r"[a-z_]{1,40}")


class ChatGPT:
    """Reads `conversations.json`, its shards, and single conversations."""

    name = "chatgpt"
    in_place = False

    def recognises(self, sample: Sample) -> bool:
        return any("mapping" in names and names & _BESIDE_MAPPING for names in outlines(sample))

    def read(self, path: Path, options: ReadOptions, state: State | None) -> Iterator[Item]:
        return read_records(path, state, _is_conversation, lambda value, place: _conversation(value, place, options))


@dataclass(frozen=True)
class _Conversation:
    """What its messages share."""

    session: str
    title: Any
    place: str


def _is_conversation(value: dict[str, Any]) -> bool:
    return isinstance(value.get("mapping"), dict)


def _conversation(value: dict[str, Any], place: str, options: ReadOptions) -> Iterator[Item]:
    mapping = value.get("mapping")
    if not isinstance(mapping, dict):
        yield Bad(place, "has no mapping of messages")
        return
    session = text_at(value, "conversation_id") or text_at(value, "id")
    title = value.get("title")
    within = _Conversation(session or digest("chatgpt", title, sorted(mapping)), title, place)
    shown, problem = _branch(mapping, value.get("current_node"))
    if problem:
        yield Bad(place, problem)
    on_branch = set(shown)
    for key in [*shown, *(key for key in mapping if key not in on_branch)]:
        node = mapping[key]
        message = node.get("message") if isinstance(node, dict) else node
        if message is None:  # the root of each tree
            continue
        if key in on_branch:
            yield from _message(message, key, within, options)
        else:
            yield LeftOut("other branch")


def _branch(mapping: dict[str, Any], current: Any) -> tuple[list[str], str | None]:
    """The nodes from the root to `current`, and what is wrong with the tree.

    Where `current` names no node it is the last one without children.
    """
    if not mapping:
        return [], None
    if not isinstance(current, str) or current not in mapping:
        leaves = [key for key, node in mapping.items() if isinstance(node, dict) and not node.get("children")]
        current = leaves[-1] if leaves else next(reversed(mapping))
    upward: dict[str, None] = {}
    key: Any = current
    while key is not None:
        if not isinstance(key, str) or key not in mapping:
            return list(reversed(upward)), "a message's parent is missing"
        if key in upward:
            return list(reversed(upward)), "messages are their own parents"
        upward[key] = None
        node = mapping[key]
        key = node.get("parent") if isinstance(node, dict) else None
    return list(reversed(upward)), None


def _message(message: Any, key: str, within: _Conversation, options: ReadOptions) -> Iterator[Item]:
    if not isinstance(message, dict):
        yield Bad(within.place, "a message is not an object")
        return
    role, recipient = _ROLES.get(text_at(object_at(message, "author"), "role")), text_at(message, "recipient")
    if role is None:
        yield Bad(within.place, "a message has no known role")
        return
    text, images = _text(object_at(message, "content"))
    thinking = _is_thinking(message)
    reason = _reason(message, text)
    if reason is None and thinking:
        role, reason = "assistant", None if options.thinking else "thinking"
    elif reason is None and role == "tool":
        text = tool_result(text, options) or ""
        reason = None if text else "tool result"
    if reason is not None:
        yield LeftOut(reason)
        return
    yield from [LeftOut("image")] * images
    called = recipient if role == "assistant" and recipient not in ("", "all") else None
    message_id = text_at(message, "id") or key
    yield Said(
        session=within.session,
        role=role,
        content=tool_call(called, text) if called else text,
        # an id that is no UUID may occur in other conversations too
        origin=message_id if _UUID.fullmatch(message_id) else digest(within.session, message_id),
        place=within.place,
        kind="tool-call" if called else "tool-result" if role == "tool" else "prose",
        created_at=moment(message.get("create_time")),
        metadata=facts(
            title=within.title,
            model=object_at(message, "metadata").get("model_slug"),
            tool=called or (object_at(message, "author").get("name") if role == "tool" else None),
        ),
    )


def _reason(message: dict[str, Any], text: str) -> str | None:
    """Why a message is no part of the conversation; None when it is one."""
    about = object_at(message, "metadata")
    if (
        text_at(object_at(message, "content"), "content_type") in _INJECTED
        or about.get("is_user_system_message") is True
    ):
        return "injected context"
    if not text.strip():
        return "empty"
    if text_at(object_at(message, "author"), "role") == "system":
        return "system prompt"
    return "hidden" if about.get("is_visually_hidden_from_conversation") is True else None


def _is_thinking(message: dict[str, Any]) -> bool:
    return (
        text_at(object_at(message, "content"), "content_type") in _THINKING
        or object_at(message, "author").get("name") == _THINKING_TOOL
        or message.get("channel") == "analysis"
    )


def _text(content: dict[str, Any]) -> tuple[str, int]:
    """What a message shows, with markers for what is no text, and how many images there are."""
    parts = content.get("parts")
    if isinstance(parts, list):
        shown = [_part(part) for part in parts]
        return joined(shown), shown.count(image_marker())
    thoughts = content.get("thoughts")
    pieces = [content, *(thoughts if isinstance(thoughts, list) else [])]
    return joined(_fields(piece) for piece in pieces if isinstance(piece, dict)), 0


def _part(part: Any) -> str:
    if isinstance(part, str):
        return part
    if not isinstance(part, dict):
        return ""
    kind = text_at(part, "content_type")
    if kind == "image_asset_pointer":
        return image_marker()
    return _fields(part) or (f"[{kind} left out]" if _PART_NAME.fullmatch(kind) else "")


def _fields(piece: dict[str, Any]) -> str:
    return joined(text_at(piece, name) for name in _TEXT_FIELDS)
