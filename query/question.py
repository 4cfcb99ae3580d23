"""A question as it is asked: its text, its scope, and how to answer it. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from producers.errors import UsageError
from query.query_context import InContext, in_context
from query.recency import NO_RECENCY, Recency
from query.recent import Recent
from workers.stores.placed_turns import Place
from workers.stores.scope import Scope

MAX_QUESTION_CHARS = 100_000
MICROSECOND = timedelta(microseconds=1)
LAST_MOMENT = datetime.max.replace(tzinfo=UTC)
MAX_NEIGHBOURS = 10
"""As in the setting `neighbours`."""
MAX_WIDE = 1000
"""As in the setting `wide`."""


@dataclass(frozen=True)
class Question:
    """One question with its scope and sizes."""

    text: str
    scope: Scope
    k: int = 5
    wide: int = 50
    deadline_ms: int = 5000
    explain: bool = False
    recency: Recency = NO_RECENCY
    min_score: float = 0.0
    """Confidence below which a turn is no hit; 0: every turn that is ranked high enough is one."""
    as_of: datetime | None = None
    """Answer as at this moment: nothing said later is seen, and ages count from it. None: now."""
    why: Place | None = None
    """(session_id, turn_index) of a turn to account for, whether it is a hit or not."""
    neighbours: int = 0
    """Turns before and after each hit that the context block shows too."""
    fold: bool = True
    """Let one hit stand for those that say the same."""
    query_context: str = ""
    """What was said before the question, as lines; the end of it is read."""
    query_context_weight: float = 0.3
    """As in the setting `query_context_weight`."""
    exclude_recent: tuple[Recent, ...] = ()
    """Turns that are not recalled, since the agent that asks still has them before it."""

    def __post_init__(self) -> None:
        if not self.text.strip():
            raise UsageError("query: empty; ask something")
        if len(self.text) > MAX_QUESTION_CHARS:
            raise UsageError(f"query: {len(self.text):,} characters, over the limit of {MAX_QUESTION_CHARS:,}")
        if len(self.query_context) > MAX_QUESTION_CHARS:
            length = f"{len(self.query_context):,} characters, over the limit of {MAX_QUESTION_CHARS:,}"
            raise UsageError(f"query_context: {length}; give the last lines, since only the end is read")
        if not 1 <= self.k <= self.wide:
            raise UsageError(f"k = {self.k}: must be from 1 to the wide pass of {self.wide}; raise wide for more")
        if not 0 <= self.min_score <= 1:
            raise UsageError(f"min_score = {self.min_score}: a confidence from 0 to 1 is due")
        if not 0 <= self.neighbours <= MAX_NEIGHBOURS:
            raise UsageError(f"neighbours = {self.neighbours}: must be from 0 to {MAX_NEIGHBOURS}")
        if self.as_of is not None and self.as_of.tzinfo is None:
            raise UsageError(f"as_of: {self.as_of.isoformat()} has no time zone; add an offset, such as Z or +08:00")

    @property
    def in_context(self) -> InContext | None:
        """The question with the lines before it, if they add something."""
        return in_context(self.text, self.query_context, self.query_context_weight)

    @property
    def seen(self) -> Scope:
        """The scope, without what was said after `as_of`."""
        if self.as_of is None:
            return self.scope
        # What was said at that moment is seen; `until` leaves it out. Later than the last moment there is nothing.
        until = min(self.as_of, LAST_MOMENT - MICROSECOND) + MICROSECOND
        return replace(self.scope, until=until if self.scope.until is None else min(until, self.scope.until))
