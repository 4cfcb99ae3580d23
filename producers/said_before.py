"""What was said before a question, as lines that a recall takes as its `query_context`. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from producers.events import TurnEvent

TURN_CHARS = 240
"""Of a turn, its two ends: a long answer is not to hide what it answers, nor a pasted text the question below it."""
MOST_CHARS = 1000
"""Of all lines, the newest: more than recall reads."""
_GAP = " … "


def said_before(turns: Iterable[TurnEvent], earlier: str = "") -> str:
    """A line `role: content` for each turn, under those of `earlier`."""
    lines = [f"{turn.role}: {_ends(turn.content)}" for turn in turns]
    return "\n".join([earlier, *lines] if earlier else lines)[-MOST_CHARS:]


def _ends(content: str) -> str:
    half = (TURN_CHARS - len(_GAP)) // 2
    text = content if len(content) <= TURN_CHARS else f"{content[:half]}{_GAP}{content[-half:]}"
    return " ".join(text.split())
