"""`SESSION:N`, the N newest turns of a session: those that its agent still has before it, and need not recall. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from producers.errors import UsageError
from producers.events import MAX_ID_CHARS

MAX_RECENT = 1_000_000
MAX_SESSIONS = 100
"""Each is looked up when the question is asked."""


@dataclass(frozen=True)
class Recent:
    """The newest turns of one session."""

    session_id: str
    turns: int

    @classmethod
    def parse(cls, text: str) -> Recent:
        """Reads SESSION:N; the session may hold colons itself. Raises `UsageError`."""
        session, colon, number = text.rpartition(":")
        # Only plain digits: int() would also take "١٠" and " 1_0 ".
        if not colon or not 1 <= len(session) <= MAX_ID_CHARS or not (number.isascii() and number.isdigit()):
            raise UsageError(f"exclude_recent {text[:300]!r}: SESSION:N is due, such as deploy-7:20")
        turns = int(number[:10])
        if not 1 <= turns <= MAX_RECENT:
            raise UsageError(
                f"exclude_recent {text[:300]!r}: N must be from 1 to {MAX_RECENT:,}; "
                "to leave out all of a session there is exclude_sessions"
            )
        return cls(session, turns)


def parse_recent(texts: Sequence[str]) -> tuple[Recent, ...]:
    """Several, as an option or a field gives them. Raises `UsageError`."""
    if len(texts) > MAX_SESSIONS:
        raise UsageError(f"exclude_recent: {len(texts):,} sessions, over the limit of {MAX_SESSIONS}")
    return tuple(Recent.parse(text) for text in texts)
