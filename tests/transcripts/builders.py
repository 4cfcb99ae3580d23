"""A small valid file of each format, with the oddities that real ones have. Does I/O.

`BUILDERS` is what `test_every_reader.py` runs over: a reader without a builder is a failure there.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import agent_builders

from producers.transcripts.registry import READERS

REPLY = "It listens on 6380."
PNG = "data:image/png;base64,iVBORw0KGgo="


def available() -> list[str]:
    """The formats whose readers can be imported."""
    return [name for name, where in READERS.items() if importlib.util.find_spec(where.partition(":")[0])]


def write_lines(path: Path, values: Sequence[Any]) -> Path:
    path.write_text("".join(json.dumps(value, ensure_ascii=False) + "\n" for value in values), encoding="utf-8")
    return path


def node(
    key: str, parent: str | None, role: str, content: dict[str, Any] | str, at: float | None = None, **fields: Any
) -> dict[str, Any]:
    """One node of a ChatGPT conversation."""
    author = {"role": role, "name": fields.pop("name", None), "metadata": {}}
    parts = {"content_type": "text", "parts": [content]} if isinstance(content, str) else content
    message = {"id": key, "author": author, "create_time": at, "content": parts, "recipient": "all", "metadata": {}}
    return {"id": key, "message": message | fields, "parent": parent, "children": []}


def conversation(title: str, nodes: Sequence[dict[str, Any]], **fields: Any) -> dict[str, Any]:
    """A ChatGPT conversation whose current node is the last."""
    mapping = {one["id"]: one for one in nodes}
    return {"title": title, "mapping": mapping, "current_node": nodes[-1]["id"], "conversation_id": title} | fields


def chatgpt(folder: Path) -> Path:
    """Two conversations; the second has another branch, a tool, thinking, an image and custom instructions."""
    root = {"id": "root", "message": None, "parent": None, "children": ["s"]}
    profile = {"content_type": "user_editable_context", "user_profile": "terse", "user_instructions": "be brief"}
    picture = {"content_type": "multimodal_text", "parts": [{"content_type": "image_asset_pointer"}, "What is it?"]}
    second = [
        root,
        node("s", "root", "system", "", metadata={"is_visually_hidden_from_conversation": True}),
        node("p", "s", "user", profile),
        node("u1", "p", "user", "Which port does Redis use?", 1_700_000_010.5),
        node("x1", "u1", "assistant", "No idea.", 1_700_000_011),
        node("t1", "u1", "assistant", {"content_type": "thoughts", "thoughts": [{"summary": "hm", "content": "ask"}]}),
        node(
            "c1", "t1", "assistant", {"content_type": "code", "text": "print(port)"}, 1_700_000_012, recipient="python"
        ),
        node("r1", "c1", "tool", {"content_type": "execution_output", "text": "6380"}, 1_700_000_009, name="python"),
        node("a1", "r1", "assistant", REPLY, 1_700_000_014, metadata={"model_slug": "gpt-4o"}),
        node("u2", "a1", "user", picture),
        node("a2", "u2", "assistant", "A \ud83d port."),
    ]
    first = [root, node("u1", "root", "user", "hi", 1_700_000_000), node("a1", "u1", "assistant", "hello")]
    path = folder / "conversations.json"
    path.write_text(json.dumps([conversation("first", first), conversation("second", second)]))
    return path


def sharegpt(folder: Path) -> Path:
    """A trajectory as Hermes writes it, and a conversation with an id."""
    call = '{"name": "recall", "arguments": {"q": "port"}}'
    result = '{"tool_call_id": "call_1", "name": "recall", "content": {"hits": ["6380"]}}'
    trajectory = [
        {"from": "system", "value": "You may call <tool_call> </tool_call> functions."},
        {"from": "human", "value": "Which port?"},
        {"from": "gpt", "value": f"<think>\nask it\n</think>\nLooking.\n<tool_call>\n{call}\n</tool_call>"},
        {"from": "tool", "value": f"<tool_response>\n{result}\n</tool_response>"},
        {"from": "gpt", "value": f"<think>\n</think>\n{REPLY}"},
    ]
    plain = [{"from": "user", "value": "hi"}, {"from": "assistant", "value": "hello"}]
    records = [{"conversations": trajectory, "model": "m", "completed": True}, {"id": 7, "conversations": plain}]
    return write_lines(folder / "trajectories.jsonl", records)


def openai(folder: Path) -> Path:
    """A log whose lines repeat what came before, another conversation in between, and a logged response."""
    call = {"id": "call_1", "type": "function", "function": {"name": "recall", "arguments": '{"q":"port"}'}}
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "You are terse. It is 10:00."},
        {"role": "user", "content": [{"type": "text", "text": "Which port?"}, {"type": "image_url", "image_url": PNG}]},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "6380"},
        {"role": "assistant", "content": REPLY},
        {"role": "user", "content": "Thanks.\n\n<memory-context>\nport 6380\n</memory-context>"},
    ]
    later = [{"role": "developer", "content": "You are terse. It is 10:05."}, *messages[1:]]
    other = [{"role": "user", "content": "hi"}]
    reply = {"created": 1_700_000_000, "choices": [{"message": {"role": "assistant", "content": "hello"}}]}
    return write_lines(
        folder / "requests.jsonl",
        [
            {"model": "m", "messages": messages[:2]},
            {"request": {"model": "m", "messages": other}, "response": reply},
            {"model": "m", "messages": messages[:4]},
            {"model": "m", "messages": later},
        ],
    )


def turns(folder: Path) -> Path:
    """Turn events, one with everything."""
    full = {
        "tenant": "acme",
        "agent_id": "a1",
        "session_id": "s1",
        "turn_index": 1,
        "role": "tool",
        "content": REPLY,
        "created_at": "2026-01-02T03:04:05+02:00",
        "tags": ["tool-result"],
        "metadata": {"tool": "recall"},
    }
    short = {"session_id": "s1", "turn_index": 0, "role": "user", "content": "Which port?"}
    return write_lines(folder / "turns.jsonl", [short, full])


BUILDERS: dict[str, Callable[[Path], Path]] = {
    "hermes": agent_builders.hermes,
    "hermes-export": agent_builders.hermes_export,
    "claude-code": agent_builders.claude_code,
    "codex": agent_builders.codex,
    "pi": agent_builders.pi,
    "letta": agent_builders.letta,
    "langchain": agent_builders.langchain,
    "langgraph": agent_builders.langgraph,
    "chatgpt": chatgpt,
    "sharegpt": sharegpt,
    "openai": openai,
    "turns": turns,
}
"""Format → what writes a file of it into a folder, and returns its path."""
