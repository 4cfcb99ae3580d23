"""What one recall may see. Pure: values only, no I/O.

Both stores read the same scope: the vector store as a prefilter, the catalog again when a hit is hydrated.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from producers.errors import UsageError
from producers.events import MAX_ID_CHARS, utc_microseconds
from workers.stores.facts import Condition, check_conditions, holds

Span = tuple[int, int]
"""A time from its first moment to before its second, in microseconds since 1970 (UTC)."""


@dataclass(frozen=True)
class Scope:
    """Filters of one recall; an empty tuple or None does not filter. Only the tenant is required.

    Values within one field are alternatives (a turn has any of the tags); the fields must all hold.
    """

    tenant: str
    sessions: tuple[str, ...] = ()
    agents: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    exclude_sessions: tuple[str, ...] = ()
    since: datetime | None = None
    """Turns said at or after this moment; a turn without a time is left out."""
    until: datetime | None = None
    """Turns said before this moment; a turn without a time is left out."""
    within: tuple[Span, ...] = ()
    """Turns said within any of these times; a turn without a time is left out."""
    before_turns: tuple[tuple[str, int], ...] = ()
    """(session_id, turn_index): of that session only turns below the index. `Catalog.newest_hidden` makes them."""
    where: tuple[Condition, ...] = ()
    """(path, value): what the metadata says, see `workers.stores.facts`; the values of one path are alternatives."""
    code_languages: tuple[str, ...] = ()
    """Chunks of code only, in one of these languages as their fences name them; case does not count."""

    def __post_init__(self) -> None:
        if not self.tenant:
            raise UsageError("tenant: recall needs one; it is what keeps one agent's memory from another's")
        if len(self.tenant) > MAX_ID_CHARS:
            raise UsageError(f"tenant: {len(self.tenant)} characters, over the limit of {MAX_ID_CHARS}")
        for name, moment in (("since", self.since), ("until", self.until)):
            if moment is not None and moment.tzinfo is None:
                raise UsageError(f"{name}: {moment.isoformat()} has no time zone; add an offset, such as Z or +08:00")
        if self.since is not None and self.until is not None and self.since >= self.until:
            raise UsageError(
                f"since {self.since.isoformat()} is not before until {self.until.isoformat()}; "
                "swap them or widen the range"
            )
        for name in ("sessions", "agents", "roles", "tags", "sources", "exclude_sessions", "code_languages"):
            if "" in getattr(self, name):
                raise UsageError(f"{name}: an empty value, which nothing has; leave it out, or name one")
        check_conditions(self.where)

    @property
    def since_us(self) -> int | None:
        return utc_microseconds(self.since)

    @property
    def until_us(self) -> int | None:
        return utc_microseconds(self.until)


@dataclass(frozen=True)
class ScopedTurn:
    """The fields of a stored turn that a scope looks at."""

    tenant: str
    session_id: str
    agent_id: str | None
    role: str
    source: str
    tags: tuple[str, ...]
    created_at_us: int | None
    turn_index: int
    metadata: str = "{}"
    """JSON: it is read only where something is asked of it."""
    code_languages: tuple[str, ...] = ()
    """Those of the turn's code, in lower case; of a chunk its own."""


def in_scope(turn: ScopedTurn, scope: Scope) -> bool:
    """Whether recall may return `turn`: the plain reading of the scope, which every store must agree with."""
    return (
        turn.tenant == scope.tenant
        and _any_of(turn.session_id, scope.sessions)
        and _any_of(turn.agent_id, scope.agents)
        and _any_of(turn.role, scope.roles)
        and _any_of(turn.source, scope.sources)
        and (not scope.tags or any(tag in scope.tags for tag in turn.tags))
        and turn.session_id not in scope.exclude_sessions
        and not any(turn.session_id == session and turn.turn_index >= index for session, index in scope.before_turns)
        and (scope.since_us is None or (turn.created_at_us is not None and turn.created_at_us >= scope.since_us))
        and (scope.until_us is None or (turn.created_at_us is not None and turn.created_at_us < scope.until_us))
        and (not scope.within or within(turn.created_at_us, scope.within))
        and (not scope.code_languages or any(one.lower() in turn.code_languages for one in scope.code_languages))
        and holds(turn.metadata, scope.where)
    )


def within(moment: int | None, spans: Iterable[Span]) -> bool:
    """Whether a moment, in microseconds since 1970, lies within any of the times; an unknown one does not."""
    return moment is not None and any(first <= moment < end for first, end in spans)


def _any_of(value: str | None, wanted: Iterable[str]) -> bool:
    alternatives = tuple(wanted)
    return not alternatives or value in alternatives
