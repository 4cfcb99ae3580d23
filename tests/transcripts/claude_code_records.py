"""Small Claude Code records of the tests' own making, with what real ones have. Pure."""

from __future__ import annotations

from typing import Any

SESSION = "11111111-1111-4111-8111-111111111111"


class Writer:
    """Makes records of one session that follow each other; each gets the next uuid and second."""

    def __init__(self, session: str = SESSION, *, begin: int = 0, **fields: Any) -> None:
        self.session = session
        self.fields = fields
        self.number = begin
        self.latest: str | None = None

    def record(self, kind: str, **fields: Any) -> dict[str, Any]:
        self.number += 1
        uuid = f"{self.session[:4]}-{self.number:04d}"
        record = {
            "parentUuid": self.latest,
            "isSidechain": False,
            "cwd": "/srv/app",
            "sessionId": self.session,
            "version": "2.1.38",
            "gitBranch": "main",
            "type": kind,
            "uuid": uuid,
            "timestamp": f"2026-02-10T10:{self.number // 60:02d}:{self.number % 60:02d}.000Z",
            **self.fields,
            **fields,
        }
        self.latest = uuid
        return record

    def user(self, content: Any, **fields: Any) -> dict[str, Any]:
        return self.record("user", message={"role": "user", "content": content}, **fields)

    def assistant(self, message: str, *blocks: dict[str, Any], **fields: Any) -> dict[str, Any]:
        content = {"role": "assistant", "id": message, "model": "claude-x", "content": list(blocks)}
        return self.record("assistant", message=content, **fields)

    def result(self, call: str, content: Any, **fields: Any) -> dict[str, Any]:
        block = {"type": "tool_result", "tool_use_id": call, "content": content, **fields}
        return self.user([block], toolUseResult={"stdout": "the same again"})


def text(content: str) -> dict[str, Any]:
    return {"type": "text", "text": content}


def thinking(content: str = "hm") -> dict[str, Any]:
    return {"type": "thinking", "thinking": content, "signature": "c2ln"}


def call(identifier: str, name: str = "Bash", **arguments: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": identifier, "name": name, "input": arguments}


def image(media_type: str = "image/png") -> dict[str, Any]:
    return {"type": "image", "source": {"type": "base64", "media_type": media_type, "data": "aGk="}}
