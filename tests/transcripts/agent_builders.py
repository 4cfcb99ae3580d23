"""A small valid file as each agent or framework writes it, for `builders.py`. Does I/O."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

USAGE = "How is it used?"
CALL = {"id": "call_1", "type": "function", "function": {"name": "terminal", "arguments": '{"command":"ls"}'}}
_TIME = "2026-02-10T10:00:0{}.000Z"


def claude_code(folder: Path) -> Path:
    session = "11111111-1111-4111-8111-111111111111"
    blocks: list[tuple[str, Any]] = [
        ("user", USAGE),
        ("assistant", [{"type": "text", "text": "Looking."}]),
        ("assistant", [{"type": "tool_use", "id": "c1", "name": "Bash", "input": {"command": "ls"}}]),
        ("user", [{"type": "tool_result", "tool_use_id": "c1", "content": "README.md"}]),
        ("assistant", [{"type": "text", "text": "Like this."}]),
    ]
    records = [
        {
            "type": role,
            "uuid": f"1111-{i}",
            "parentUuid": f"1111-{i - 1}" if i else None,
            "isSidechain": False,
            "sessionId": session,
            "timestamp": _TIME.format(i),
            "cwd": "/srv/app",
            "version": "2.1.38",
            "message": {"role": role, "id": f"msg_{min(i, 2)}" if role == "assistant" else None, "content": content},
        }
        for i, (role, content) in enumerate(blocks)
    ]
    return _lines(folder / f"{session}.jsonl", records)


def codex(folder: Path) -> Path:
    session = "019c0000-0000-7000-8000-00000000000a"
    payloads: list[tuple[str, dict[str, Any]]] = [
        ("session_meta", {"id": session, "cwd": "/srv/app", "timestamp": _TIME.format(0)}),
        ("response_item", _codex_message("user", "input_text", USAGE)),
        ("event_msg", {"type": "user_message", "message": USAGE}),
        ("response_item", {"type": "function_call", "name": "shell", "arguments": "{}", "call_id": "c1"}),
        ("response_item", {"type": "function_call_output", "call_id": "c1", "output": "README.md"}),
        ("response_item", _codex_message("assistant", "output_text", "Like this.")),
    ]
    records = [
        {"timestamp": _TIME.format(i), "type": kind, "payload": payload} for i, (kind, payload) in enumerate(payloads)
    ]
    return _lines(folder / f"rollout-2026-02-10T10-00-00-{session}.jsonl", records)


def pi(folder: Path) -> Path:
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": USAGE},
        {"role": "assistant", "content": [{"type": "toolCall", "id": "c1", "name": "bash", "arguments": {"a": 1}}]},
        {"role": "toolResult", "toolCallId": "c1", "toolName": "bash", "content": [{"type": "text", "text": "x"}]},
        {"role": "assistant", "content": [{"type": "text", "text": "Like this."}]},
    ]
    header = {"type": "session", "version": 3, "id": "5e55", "timestamp": _TIME.format(0), "cwd": "/srv/app"}
    entries = [
        {
            "type": "message",
            "id": f"e{i}",
            "parentId": f"e{i - 1}" if i else None,
            "timestamp": _TIME.format(i),
            "message": {"timestamp": 1_770_000_000_000 + i, **message},
        }
        for i, message in enumerate(messages)
    ]
    return _lines(folder / "pi.jsonl", [header, *entries])


def langchain(folder: Path) -> Path:
    call = {"name": "f", "args": {"n": 1}, "id": "c1", "type": "tool_call"}
    messages: list[tuple[str, dict[str, Any]]] = [
        ("system", {"content": "Be brief."}),
        ("human", {"content": USAGE, "id": "h1"}),
        ("ai", {"content": "Looking.", "id": "a1", "tool_calls": [call]}),
        ("tool", {"content": "x", "id": "t1", "name": "f", "tool_call_id": "c1"}),
        ("ai", {"content": "Like this.", "id": "a2"}),
    ]
    path = folder / "messages.json"
    path.write_text(json.dumps([{"type": kind, "data": {"type": kind, **data}} for kind, data in messages]))
    return path


def letta(folder: Path) -> Path:
    send = {"name": "send_message", "arguments": json.dumps({"message": "Like this."})}
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": [{"type": "text", "text": USAGE}]},
        {"role": "assistant", "content": [], "tool_calls": [{"id": "c1", "type": "function", "function": send}]},
    ]
    named = [{"id": f"message-{i}", "created_at": _TIME.format(i), **one} for i, one in enumerate(messages)]
    path = folder / "agent.af"
    path.write_text(json.dumps({"agents": [{"id": "agent-0", "agent_type": "memgpt_agent", "messages": named}]}))
    return path


def hermes(folder: Path) -> Path:
    return Path(_hermes_database(folder).path)


def hermes_export(folder: Path) -> Path:
    path = folder / "out.jsonl"
    _hermes_database(folder).export(path)
    return path


def _hermes_database(folder: Path) -> Any:
    from hermes_database import HermesDatabase

    database = HermesDatabase(folder / "state.db")
    database.session("a", model="m-1")
    database.say("a", "user", USAGE)
    database.say("a", "assistant", None, tool_calls=[CALL])
    database.say("a", "tool", "README.md", tool_call_id="call_1", tool_name="terminal")
    database.say("a", "assistant", "Like this.")
    database.compact("a", 0, 2)
    database.branch("a", "b")
    database.say("b", "user", "on the branch")
    return database


def langgraph(folder: Path) -> Path:
    from test_langgraph import Saver, ai, human

    saver = Saver(folder / "checkpoints.sqlite")
    saver.save("one", human(USAGE, "1"))
    saver.save("one", human(USAGE, "1"), ai("Like this.", "2", tool_calls=[{"name": "f", "args": {}, "id": "c1"}]))
    return saver.path


def _codex_message(role: str, kind: str, text: str) -> dict[str, Any]:
    return {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}


def _lines(path: Path, records: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path
