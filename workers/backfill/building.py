"""Turn events out of what a transcript says: ids, times, sizes and characters as the stream takes them. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from producers.events import TurnEvent
from producers.settings import Settings
from producers.storable import identifier, storable, within
from producers.transcripts.port import LeftOut, Said

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
        content=within(said.content, settings.max_content_bytes),
        speaker=identifier(said.speaker) if said.speaker else None,
        created_at=said.created_at,
        source=source,
        tags=() if said.kind == "prose" else (said.kind,),
        metadata=_metadata(_prefixed(said.metadata, target.session_prefix), settings.max_metadata_bytes),
    )


def _prefixed(facts: dict[str, Any], prefix: str) -> dict[str, Any]:
    """The facts with the parent session named as it is stored."""
    parent = facts.get("parent_session")
    return facts | {"parent_session": identifier(prefix + str(parent))} if parent and prefix else facts


def _metadata(facts: dict[str, Any], limit: int) -> dict[str, Any]:
    """The facts that have a value, long ones cut; the longest are left out while all together are too large."""
    kept: dict[str, Any] = {}
    for name, value in facts.items():
        if value is None or value == "":
            continue
        text = value if isinstance(value, (bool, int, float)) else storable(str(value))
        kept[name] = text[:MAX_FACT_CHARS] if isinstance(text, str) else text
    while kept and len(json.dumps(kept, ensure_ascii=False).encode()) > limit:
        del kept[max(kept, key=lambda name: len(str(kept[name])))]
    return kept
