"""What a forget covers, and the tombstone it leaves. Pure: values only, no I/O.

Catalog, vectors, streams, dead letters and spools are all asked the same question, so that none of them keeps a turn
that another has forgotten.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from datetime import UTC, datetime

from producers.errors import UsageError
from producers.events import MAX_ID_CHARS, TurnEvent, utc_microseconds
from workers.order import milliseconds_of, order_at

RETENTION = "retention"
"""Reason of a tombstone whose turns the retention rules chose."""


@dataclass(frozen=True)
class Selection:
    """The turns of one tenant that are to be forgotten; None does not narrow it."""

    tenant: str
    session: str | None = None
    agent: str | None = None
    before: datetime | None = None
    """Turns said before this moment; one without a time counts as said when it was accepted."""

    def __post_init__(self) -> None:
        for name in ("tenant", "session", "agent"):
            value = getattr(self, name)
            if value is not None and not 1 <= len(value) <= MAX_ID_CHARS:
                raise UsageError(f"{name}: {len(value)} characters; an id has 1 to {MAX_ID_CHARS}")
        if self.before is not None and self.before.tzinfo is None:
            raise UsageError(f"before: {self.before.isoformat()} has no time zone; add an offset, such as Z or +08:00")
        try:
            _ = self.before and self.before.astimezone(UTC)
        except OverflowError:
            raise UsageError(f"before: {self.before} lies outside the years 1 to 9999 in UTC") from None

    @property
    def before_us(self) -> int | None:
        return utc_microseconds(self.before)

    @property
    def before_order(self) -> str | None:
        """The first entry order that is not before `before`."""
        return None if self.before_us is None else order_at(-(-self.before_us // 1000))

    def __str__(self) -> str:
        parts = [f"tenant {self.tenant}"]
        parts += [f"session {self.session}"] if self.session is not None else []
        parts += [f"agent {self.agent}"] if self.agent is not None else []
        parts += [f"before {self.before.isoformat()}"] if self.before is not None else []
        return ", ".join(parts)


@dataclass(frozen=True)
class Facts:
    """What a tombstone looks at in an event on its way."""

    tenant: str
    session_id: str
    agent_id: str | None
    created_at_us: int | None
    accepted: str
    """Zero-padded entry order of the moment when the event was accepted, onto the stream or into a spool."""

    @classmethod
    def of_event(cls, event: TurnEvent, accepted: str) -> Facts:
        return cls(event.tenant, event.session_id, event.agent_id, utc_microseconds(event.created_at), accepted)

    @classmethod
    def of_payload(cls, payload: bytes, accepted: str) -> Facts | None:
        """From an event's JSON, also of one that breaks other rules; None for what says nothing of whose it is."""
        try:
            fields = json.loads(payload)
            created = fields.get("created_at")
            moment = datetime.fromisoformat(created) if created else None
            tenant, session = fields.get("tenant", "default"), fields["session_id"]
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return None
        agent = fields.get("agent_id")
        if not isinstance(tenant, str) or not isinstance(session, str) or not isinstance(agent, str | None):
            return None
        return cls(tenant, session, agent, utc_microseconds(moment) if moment and moment.tzinfo else None, accepted)


@dataclass(frozen=True)
class Tombstone:
    """A forget as it is remembered: by digests, so that what was forgotten is not kept as the name of itself."""

    id: int
    tenant_digest: str
    session_digest: str | None
    agent_digest: str | None
    before_us: int | None
    cutoff: str
    """What was accepted up to this entry order is forgotten; what is pushed later, on purpose, is not."""
    reason: str = "forget"
    """Or `RETENTION`."""

    def covers(self, facts: Facts) -> bool:
        """Whether an event on its way is to be dropped."""
        return (
            self.reason != RETENTION  # what comes late is for the next run to judge
            and facts.accepted <= self.cutoff
            and digest("tenant", facts.tenant) == self.tenant_digest
            and (self.session_digest is None or digest("session", facts.session_id) == self.session_digest)
            and (self.agent_digest is None or digest("agent", facts.agent_id) == self.agent_digest)
            and (self.before_us is None or _said_us(facts) < self.before_us)
        )


def digest(kind: str, value: str | None) -> str | None:
    """32 hex digits of an id, told apart by what it is the id of; None stays None."""
    return None if value is None else hashlib.sha256(f"{kind}\0{value}".encode()).hexdigest()[:32]


def _said_us(facts: Facts) -> int:
    if facts.created_at_us is not None:
        return facts.created_at_us
    return milliseconds_of(facts.accepted) * 1000
