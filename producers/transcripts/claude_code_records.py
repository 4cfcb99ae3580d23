"""The records of a Claude Code transcript: their kinds, ids and facts, and which are no conversation. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from producers.transcripts.blocks import blocks
from producers.transcripts.text import digest
from producers.transcripts.values import mapping, string

LEFT_OUT = {
    "progress": "progress",
    "summary": "title",
    "custom-title": "title",
    "ai-title": "title",
    "file-history-snapshot": "file history",
    "queue-operation": "queue operation",
    "system": "system record",
    "attachment": "injected context",
}
_QUIET = ("progress", "file-history-snapshot", "queue-operation", "system")
OTHER_RECORD = "other record"
INJECTED = "injected context"
INTERNAL_AGENTS = {"acompact": "internal compaction", "aprompt_suggestion": "internal suggestion"}
"""By the beginning of the agent's id: what they say goes to the program, not to a person."""


def is_record(value: dict[str, Any]) -> bool:
    """Whether an object in a broken line is a whole record; progress has messages of sub-agents inside."""
    if not isinstance(value.get("type"), str):
        return False
    if value["type"] in ("user", "assistant"):
        return "sessionId" in value and "uuid" in value and "message" in value
    return any(key in value for key in ("sessionId", "uuid", "leafUuid", "snapshot"))


def is_quiet(record: dict[str, Any]) -> bool:
    """Whether it can be left out at a glance, as most records can."""
    return record.get("type") in _QUIET and record.get("isSidechain") is not True


def identity(record: dict[str, Any]) -> str:
    """The record's id in every copy: a fork gives new ones and names the old."""
    old = string(mapping(record.get("forkedFrom")).get("messageUuid"))
    if own := old or string(record.get("uuid")):
        return own
    message = mapping(record.get("message"))
    said = [string(block.get("text")) or string(block.get("id")) for block in blocks(message.get("content"))]
    return digest(string(record.get("sessionId")), string(record.get("timestamp")), string(message.get("role")), said)


def content_of(record: dict[str, Any]) -> str | list[Any] | None:
    """Of the record's message; None when it has none."""
    content = mapping(record.get("message")).get("content")
    return content if isinstance(content, (str, list)) else None


def internal_agent(record: dict[str, Any]) -> str | None:
    """Why nothing that the record's agent says is conversation."""
    agent = string(record.get("agentId"))
    return next((reason for name, reason in INTERNAL_AGENTS.items() if agent.startswith(name)), None)


def is_synthetic(record: dict[str, Any]) -> bool:
    """Whether the program wrote it in the assistant's place."""
    return record.get("isApiErrorMessage") is True or mapping(record.get("message")).get("model") == "<synthetic>"


def queued_prompt(record: dict[str, Any]) -> Any:
    """What a user typed while the agent was at work comes as an attachment; None for every other one."""
    attachment = mapping(record.get("attachment"))
    if attachment.get("type") != "queued_command" or attachment.get("commandMode", "prompt") != "prompt":
        return None
    return attachment.get("prompt")


def title_of(record: dict[str, Any]) -> str:
    """The title that a title record gives to its session."""
    return string(record.get("customTitle")) or string(record.get("aiTitle"))


def facts(record: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """What every turn of the record carries with it."""
    for name, key in (("cwd", "cwd"), ("git_branch", "gitBranch")):
        if value := string(record.get(key)):
            yield name, value
    model = string(mapping(record.get("message")).get("model"))
    if model:
        yield "model", model
