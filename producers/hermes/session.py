"""What of which sessions the agent has before it, as Hermes switches, compacts and takes back. Pure.

What is before the agent need not be recalled: the live session's turns, or the newest of them after a compaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from producers.events import TurnEvent
from producers.hermes.recalling import ALL_TURNS, RECENT_TURNS
from producers.said_before import said_before


@dataclass
class Session:
    """The session that is talked in."""

    id: str
    parent: str = ""
    in_context: dict[str, int] = field(default_factory=dict)
    """Session → how many of its newest turns are before the agent."""
    before: str = ""
    """The end of what was said, as it was sent: what the next question is asked after."""
    rewound: bool = False
    """Something was taken back since the last turn, and the next one tells what."""

    def __post_init__(self) -> None:
        self.in_context.setdefault(self.id, ALL_TURNS)

    def said(self, turns: Sequence[TurnEvent]) -> None:
        """Some more turns are before the agent."""
        count = self.in_context[self.id]
        self.in_context = self.in_context | {self.id: min(ALL_TURNS, count + len(turns))}
        self.before = said_before(turns, self.before)

    def rewind(self) -> None:
        """Something is taken back; how much of the last lines is not known."""
        self.rewound = True
        self.before = ""

    def compacted(self) -> None:
        """Only the newest turns are left of every session."""
        self.in_context = {name: min(turns, RECENT_TURNS) for name, turns in self.in_context.items()}

    def switched(self, new: str, parent: str, *, reset: bool, reason: str) -> Session:
        """The session after a switch to `new`, which continues, branches from, or replaces this one."""
        if reset or reason == "resume":
            return Session(new)
        if reason == "compression":
            self.compacted()
            if new == self.id:
                return self
        # What a branch or a continued session has of the one before it is before the agent still.
        return Session(new, parent or self.id, dict(self.in_context), self.before)
