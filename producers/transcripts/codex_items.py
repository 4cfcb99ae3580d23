"""What the items of a Codex rollout hold: texts without what is injected, calls and results. Pure."""

from __future__ import annotations

import json
import re
from typing import Any

from producers.transcripts.blocks import RECALLED, blocks, without_elements
from producers.transcripts.text import image_marker, joined, tool_call
from producers.transcripts.values import mapping, string

INJECTED = "injected context"
LOCAL_COMMAND = "local command"
_INJECTED_ELEMENTS = (
    "environment_context",
    "user_instructions",
    "turn_aborted",
    "subagent_notification",
    "skill",
    "skills_instructions",
    "apps_instructions",
    "plugins_instructions",
    "recommended_plugins",
    "permissions instructions",
    "collaboration_mode",
    "personality_spec",
    "model_switch",
    "goal_context",
    "hook_prompt",
    "app-context",
    "INSTRUCTIONS",
    RECALLED,
)
_INJECTED_BEGINNINGS = ("# AGENTS.md instructions", "Another language model started to solve this problem")
_REQUEST = "## My request for Codex:"
"""Behind it stands what the user wrote; before it, what the editor adds."""
_IMAGE_FRAME = re.compile(r"\s*</?image\b[^<>]*>\s*")
_TEXT_BLOCKS = frozenset({"input_text", "output_text", "text", "Text", "refusal"})
_IMAGE_BLOCKS = frozenset({"input_image", "image", "local_image", "Image", "LocalImage"})


def message_text(content: Any, *, user: bool) -> tuple[str, int, list[str]]:
    """The text of a message, its number of images, and the reasons for what is left out of it."""
    texts: list[str] = []
    images, reasons = 0, []
    for block in blocks(content):
        kind = string(block.get("type"))
        if kind in _IMAGE_BLOCKS:
            images += 1
        elif kind in _TEXT_BLOCKS and user:
            text, left_out = user_text(string(block.get("text")))
            texts.append(text)
            reasons += left_out
        elif kind in _TEXT_BLOCKS:
            texts.append(string(block.get("text")) or string(block.get("refusal")))
    return joined(texts), images, reasons


def user_text(text: str) -> tuple[str, list[str]]:
    """What the user wrote of a text, and the reasons for what is left out of it."""
    if _IMAGE_FRAME.fullmatch(text):
        return "", []
    if text.lstrip().startswith(_INJECTED_BEGINNINGS):
        return "", [INJECTED]
    if text.lstrip().startswith("<user_shell_command>"):
        return "", [LOCAL_COMMAND]
    text, count = without_elements(text, _INJECTED_ELEMENTS)
    reasons = [INJECTED] * count
    before, heading, request = text.partition(_REQUEST)
    if heading and before.lstrip().startswith("#"):
        return request.strip("\n"), [*reasons, INJECTED]
    return text, reasons


def with_images(text: str, images: int) -> str:
    """The text with a marker for each image behind it."""
    return joined([text, *[image_marker()] * images])


def call_of(item: dict[str, Any]) -> tuple[str, str] | None:
    """The tool's name and the call as it is stored; None for an item that is no call."""
    kind = string(item.get("type"))
    name = string(item.get("name"))
    if kind in ("function_call", "tool_search_call"):
        name = name or kind.removesuffix("_call")
        return name, tool_call(name, item.get("arguments"))
    if kind == "custom_tool_call":
        return name, tool_call(name, item.get("input"))
    if kind == "local_shell_call":
        return "local_shell", tool_call("local_shell", mapping(item.get("action")).get("command"))
    if kind == "web_search_call":
        return "web_search", tool_call("web_search", item.get("action"))
    if kind == "image_generation_call":
        return "image_generation", tool_call("image_generation", string(item.get("revised_prompt")))
    return None


def result_of(item: dict[str, Any]) -> tuple[str, bool]:
    """The text of a result, and whether the call failed. Older results are JSON inside of a text."""
    output = item.get("output")
    failed = False
    if isinstance(output, str) and output.startswith('{"output"'):
        try:
            output = json.loads(output)
        except (ValueError, RecursionError):
            return output, False
    if isinstance(output, dict):
        failed = output.get("success") is False or mapping(output.get("metadata")).get("exit_code", 0) not in (0, None)
        output = output.get("output", output.get("content"))
    text, images, _ = message_text(output, user=False)
    return with_images(without_elements(text, (RECALLED,))[0], images), failed


def thoughts(item: dict[str, Any]) -> str:
    """What is readable of a reasoning item."""
    parts = [*blocks(item.get("summary")), *blocks(item.get("content"))]
    return joined(string(part.get("text")) for part in parts)
