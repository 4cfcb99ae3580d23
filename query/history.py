"""Stored sessions and their turns as an answer for programs. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from producers.events import TurnEvent
from workers.stores.history import StoredSession

SESSIONS_SHOWN = 20
MAX_SESSIONS = 10_000
"""Sessions in one answer."""
MAX_TURNS = 1000
MAX_CHARS = 8 << 20
"""Turns, and characters that they say, in one answer over HTTP; one turn may say more."""


def sessions_answer(found: Sequence[StoredSession], total: int) -> dict[str, Any]:
    """`total`: how many sessions there are in scope, listed or not."""
    return {"sessions": [one.as_json() for one in found], "total": total}


def turns_answer(session_id: str, found: Sequence[TurnEvent], total: int) -> dict[str, Any]:
    """`total`: how many turns of the session are in scope, given or not."""
    return {"session_id": session_id, "turns": [_turn(one) for one in found], "total": total}


def as_many(turns: Iterable[TurnEvent]) -> list[TurnEvent]:
    """The first of these turns, as many as one answer holds."""
    taken: list[TurnEvent] = []
    chars = 0
    for turn in turns:
        chars += len(turn.content)
        if len(taken) == MAX_TURNS or (taken and chars > MAX_CHARS):
            break
        taken.append(turn)
    return taken


def _turn(turn: TurnEvent) -> dict[str, Any]:
    said = turn.created_at.isoformat() if turn.created_at else None
    return {**turn.model_dump(), "tags": list(turn.tags), "created_at": said}
