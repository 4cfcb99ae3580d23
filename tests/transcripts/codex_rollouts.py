"""Small Codex rollouts of the tests' own making, with what real ones have. Pure."""

from __future__ import annotations

import json
from typing import Any

ROOT = "019c0000-0000-7000-8000-00000000000a"
"""Its first digits are its time: 2026-01-27 15:08 UTC; so it is with all of these."""
FORK = "019c2000-0000-7000-8000-00000000000b"
TURN_1 = "019c0001-0000-7000-8000-000000000001"
TURN_2 = "019c0002-0000-7000-8000-000000000002"
FORK_TURN = "019c2001-0000-7000-8000-000000000003"


class Rollout:
    """Makes lines that follow each other; each gets the next second."""

    def __init__(self, minute: int = 0) -> None:
        self.number = minute * 60

    def line(self, kind: str, **payload: Any) -> dict[str, Any]:
        self.number += 1
        time = f"2026-01-27T16:{self.number // 60:02d}:{self.number % 60:02d}.000Z"
        return {"timestamp": time, "type": kind, "payload": payload}

    def meta(self, identifier: str = ROOT, **fields: Any) -> dict[str, Any]:
        common = {"cwd": "/srv/app", "git": {"branch": "main"}, "timestamp": "2026-01-27T15:08:46.000Z"}
        return self.line("session_meta", id=identifier, **common, **fields)

    def turn(self, identifier: str | None) -> dict[str, Any]:
        named = {"turn_id": identifier} if identifier else {}
        return self.line("turn_context", model="gpt-x", cwd="/srv/app", **named)

    def message(self, role: str, *texts: str, **fields: Any) -> dict[str, Any]:
        kind = "output_text" if role == "assistant" else "input_text"
        content = [{"type": kind, "text": text} for text in texts]
        return self.line("response_item", type="message", role=role, content=content, **fields)

    def event(self, kind: str, **fields: Any) -> dict[str, Any]:
        return self.line("event_msg", type=kind, **fields)

    def call(self, identifier: str, command: str) -> dict[str, Any]:
        arguments = json.dumps({"command": command})
        return self.line("response_item", type="function_call", name="shell", arguments=arguments, call_id=identifier)

    def result(self, identifier: str, output: Any) -> dict[str, Any]:
        return self.line("response_item", type="function_call_output", call_id=identifier, output=output)


def conversation(turn_1: str | None = TURN_1, turn_2: str | None = TURN_2) -> list[dict[str, Any]]:
    """Two turns, with messages as items and as events, in both orders."""
    r = Rollout()
    return [
        r.meta(),
        r.message("developer", "<permissions instructions>…</permissions instructions>"),
        r.message("user", "<environment_context><cwd>/srv/app</cwd></environment_context>"),
        r.turn(turn_1),
        r.message("user", "Which port?"),
        r.event("user_message", message="Which port?", images=[]),
        r.event("agent_reasoning", text="**Looking**"),
        r.line("response_item", type="reasoning", summary=[{"type": "summary_text", "text": "**Looking**"}],
               content=None, encrypted_content="gAAA"),
        r.call("call_1", "ss -ltn"),
        r.result("call_1", json.dumps({"output": "LISTEN 8443", "metadata": {"exit_code": 0}})),
        r.event("token_count", info={}),
        r.event("agent_message", message="It is 8443."),
        r.message("assistant", "It is 8443."),
        r.turn(turn_2),
        r.message("user", "continue"),
        r.event("user_message", message="continue"),
        r.message("assistant", "Done."),
        r.message("user", "continue"),
        r.event("user_message", message="continue"),
        r.message("assistant", "Done."),
    ]  # fmt: skip


def fork(history: list[dict[str, Any]], identifier: str = FORK) -> list[dict[str, Any]]:
    """A rollout that copies `history` with new times and goes on."""
    r = Rollout(minute=30)
    copied = [{**line, "timestamp": "2026-02-02T20:16:37.010Z"} for line in history]
    own = {**r.meta(identifier, forked_from_id=ROOT), "timestamp": "2026-02-02T20:16:37.001Z"}
    own["payload"]["timestamp"] = "2026-02-02T20:16:37.000Z"
    rest = [r.turn(FORK_TURN), r.message("user", "Now TLS"), r.message("assistant", "TLS is on.")]
    for line in rest:
        line["timestamp"] = line["timestamp"].replace("2026-01-27", "2026-02-03")
    return [own, *copied, *rest]
