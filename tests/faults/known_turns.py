"""Turns whose content follows from their number, for the fault tests and the producers they start. Pure."""

from __future__ import annotations

from producers.events import TurnEvent

TENANTS = 7
SESSIONS = 31
LONG_EVERY = 10
"""Every tenth turn is long enough for several chunks."""
LONG_PARAGRAPHS = 4


def known_turn(number: int, revision: int = 0) -> TurnEvent:
    """Turn `number`; no two have the same text or the same chunk, nor have two of its revisions."""
    name = f"turn {number}, revision {revision}" if revision else f"turn {number}"
    lines = [f"{name}: build {number * 7919 % 1_000_003} passed on host {number % 13}，部署完成。"]
    if number % LONG_EVERY == 0:
        lines += [
            f"Paragraph {part} of {name}: " + f"step {number}-{part} was checked and found in order. " * 4
            for part in range(LONG_PARAGRAPHS)
        ]
    return TurnEvent(
        tenant=f"tenant {number % TENANTS}",
        session_id=f"session {number % SESSIONS}",
        turn_index=number,
        role=("user", "assistant")[number % 2],
        content="\n\n".join(lines),
    )
