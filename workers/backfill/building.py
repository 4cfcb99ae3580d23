"""Turn events out of what a transcript says: ids, times, sizes and characters as the stream takes them. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from producers.errors import InvalidEvent, UsageError
from producers.events import TurnEvent, valid_event
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

    def check(self) -> None:
        """Raises `UsageError` for a tenant or agent that no turn can have."""
        probe = {"tenant": self.tenant, "agent_id": self.agent, "session_id": "s", "turn_index": 0, "role": "user"}
        try:
            valid_event(json.dumps({**probe, "content": "x"}))
        except InvalidEvent as error:
            raise UsageError(f"--{str(error).replace('agent_id', 'agent', 1)}") from None


def event_of(said: Said, source: str, target: Target, settings: Settings) -> TurnEvent | LeftOut:
    """The event, with turn index 0 for the time being; `LeftOut` with the reason when it is not to be imported."""
    if not said.content.strip():
        return LeftOut("empty")
    reason = untimely(said.created_at, target)
    if reason is not None:
        return LeftOut(reason)
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


def untimely(said: datetime | None, target: Target) -> str | None:
    """Why a turn of this time is not wanted; None when it is."""
    if target.since is None and target.until is None:
        return None
    if said is None:
        return "no time to compare"
    outside = (target.since and said < target.since) or (target.until and said >= target.until)
    return "outside the time range" if outside else None


def adopted(event: TurnEvent, target: Target) -> TurnEvent:
    """A turn event with what it does not say itself, tenant and agent, and its session under the target's prefix."""
    changes: dict[str, Any] = {}
    if "tenant" not in event.model_fields_set:
        changes["tenant"] = target.tenant
    if event.agent_id is None and target.agent is not None:
        changes["agent_id"] = target.agent
    if target.session_prefix:
        changes["session_id"] = identifier(target.session_prefix + event.session_id)
    return event.model_copy(update=changes) if changes else event


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
