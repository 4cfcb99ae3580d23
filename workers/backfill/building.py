"""Turn events out of what a transcript says: ids, times, sizes and characters as the stream takes them. Pure."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from producers.events import MAX_ID_CHARS, TurnEvent
from producers.settings import Settings
from producers.transcripts.port import LeftOut, Said
from producers.transcripts.text import digest

_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
_CONTROL = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")
REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
MAX_FACT_CHARS = 1000
"""Of one metadata value; a title or a path is shorter."""


@dataclass(frozen=True)
class Target:
    """Where a person wants the turns, and which of them."""

    tenant: str
    agent: str | None = None
    session_prefix: str = ""
    since: datetime | None = None
    until: datetime | None = None


def event_of(said: Said, source: str, target: Target, settings: Settings) -> TurnEvent | LeftOut:
    """The event, with turn index 0 for the time being; `LeftOut` with the reason when it is not to be imported."""
    if not said.content.strip():
        return LeftOut("empty")
    if target.since is not None or target.until is not None:
        if said.created_at is None:
            return LeftOut("no time to compare")
        if (target.since and said.created_at < target.since) or (target.until and said.created_at >= target.until):
            return LeftOut("outside the time range")
    return TurnEvent(
        tenant=target.tenant,
        agent_id=identifier(said.agent_id) if said.agent_id else target.agent,
        session_id=identifier(target.session_prefix + said.session),
        turn_index=0,
        role=said.role,
        content=_content(said.content, settings.max_content_bytes),
        speaker=identifier(said.speaker) if said.speaker else None,
        created_at=said.created_at,
        source=source,
        tags=() if said.kind == "prose" else (said.kind,),
        metadata=_metadata(_prefixed(said.metadata, target.session_prefix), settings.max_metadata_bytes),
    )


def identifier(text: str) -> str:
    """An id that the stream takes; one that is too long keeps its beginning and gets a digest."""
    clean = _CONTROL.sub(REPLACEMENT, text)
    if len(clean) <= MAX_ID_CHARS:
        return clean or REPLACEMENT
    mark = digest(text)
    return f"{clean[: MAX_ID_CHARS - len(mark) - 1]}-{mark}"


def _prefixed(facts: dict[str, Any], prefix: str) -> dict[str, Any]:
    """The facts with the parent session named as it is stored."""
    parent = facts.get("parent_session")
    return facts | {"parent_session": identifier(prefix + str(parent))} if parent and prefix else facts


def _content(text: str, limit: int) -> str:
    """Without what no store can hold, and cut to `limit` bytes with a note of how much is left out."""
    clean = _UNSTORABLE.sub(REPLACEMENT, text)
    size = len(clean.encode())
    if size <= limit:
        return clean
    note = f"\n[{size - limit:,} bytes and more left out]"
    return clean.encode()[: max(1, limit - len(note) - 3)].decode(errors="ignore") + note


def _metadata(facts: dict[str, Any], limit: int) -> dict[str, Any]:
    """The facts that have a value, long ones cut; the longest are left out while all together are too large."""
    kept: dict[str, Any] = {}
    for name, value in facts.items():
        if value is None or value == "":
            continue
        text = value if isinstance(value, (bool, int, float)) else _UNSTORABLE.sub(REPLACEMENT, str(value))
        kept[name] = text[:MAX_FACT_CHARS] if isinstance(text, str) else text
    while kept and len(json.dumps(kept, ensure_ascii=False).encode()) > limit:
        del kept[max(kept, key=lambda name: len(str(kept[name])))]
    return kept
