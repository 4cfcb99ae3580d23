"""Turn events out of what Hermes says: an exchange, a note, a sub-agent's task. Pure.

The content is what the import of the same session makes of it, so that one said live and imported later is one turn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from producers.events import LIVE_FROM, Role, TurnEvent
from producers.hermes.identity import Memory
from producers.hermes.redaction import redacted
from producers.storable import identifier, storable, within
from producers.transcripts.hermes_messages import message
from producers.transcripts.port import ReadOptions
from producers.transcripts.text import digest

LIVE, NOTES, DELEGATIONS = "hermes-live", "hermes-note", "hermes-delegation"
"""Sources."""
_FACT_CHARS = 500
_OPTIONS = ReadOptions()


@dataclass(frozen=True)
class Writer:
    """Makes the events of one memory."""

    memory: Memory
    redact: bool
    max_content_bytes: int
    facts: dict[str, str]
    """Metadata of every turn: platform and the like."""

    def exchange(self, session: str, index: int, said: tuple[str, str], now: datetime, parent: str) -> list[TurnEvent]:
        """A question and its answer; what is blank is left out."""
        roles: tuple[Role, Role] = ("user", "assistant")
        facts = self.facts | ({"parent_session": parent} if parent else {})
        made = (
            self._event(session, index + place, role, content, LIVE, now, facts)
            for place, (role, content) in enumerate(zip(roles, said, strict=True))
        )
        return [event for event in made if event is not None]

    def note(self, content: str, now: datetime, tags: Sequence[str] = ()) -> list[TurnEvent]:
        """Something to remember, in a session of its own: the same note twice is one, and can be forgotten alone."""
        clean = self.clean(content)
        found = self._event(note_session(clean), 0, "user", clean, NOTES, now, dict(self.facts), ("note", *tags))
        return [] if found is None else [found]

    def delegation(self, child: str, said: tuple[str, str], now: datetime, parent: str) -> list[TurnEvent]:
        """What a sub-agent was told, and what came of it, in the sub-agent's session."""
        session = child or f"delegation-{digest(parent, *said)}"
        facts = self.facts | ({"parent_session": parent} if parent else {})
        task, result = said
        made = (
            self._event(session, LIVE_FROM, "user", task, DELEGATIONS, now, facts, ("delegation",)),
            self._event(session, LIVE_FROM + 1, "assistant", result, DELEGATIONS, now, facts, ("delegation",)),
        )
        return [event for event in made if event is not None]

    def clean(self, text: str) -> str:
        """Prose as the import keeps it, without secrets, at most as long as a turn may be."""
        prose = message({"role": "user", "content": text}).content.prose(_OPTIONS)
        return within(redacted(prose) if self.redact else prose, self.max_content_bytes)

    def _event(
        self,
        session: str,
        index: int,
        role: Role,
        content: str,
        source: str,
        now: datetime,
        facts: Mapping[str, str],
        tags: Sequence[str] = (),
    ) -> TurnEvent | None:
        prose = self.clean(content)
        if not prose.strip():
            return None
        return TurnEvent(
            tenant=self.memory.tenant,
            agent_id=self.memory.agent_id,
            session_id=identifier(session),
            turn_index=index,
            role=role,
            content=prose,
            created_at=now,
            source=source,
            tags=tuple(identifier(tag) for tag in tags),
            metadata={name: storable(value)[:_FACT_CHARS] for name, value in facts.items()},
        )


def questions(messages: Sequence[Any]) -> list[str]:
    """What the user said, by the history that Hermes hands over, which it may be adding to."""
    return [message(one).text for one in list(messages) if isinstance(one, Mapping) and one.get("role") == "user"]


def note_session(content: str) -> str:
    """The session that a note is kept in."""
    return f"note-{digest(content)}"
