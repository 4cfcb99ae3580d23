"""What is recalled before a turn and by the tool: the question's body, what is left out, and the block's bounds.

Asks the service; keeps no content.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from producers.errors import RetryableError, ScopeRecallError, ServiceAway, ServiceLate, ServiceRefused, UsageError
from producers.hermes.identity import Memory
from producers.hermes.pause import Pause, log
from producers.hermes.redaction import redacted
from producers.hermes.service import Service

MAX_BLOCK_CHARS = 9_500
"""Hermes puts a block over 10,000 characters into a file."""
MAX_QUERY_CHARS = 8_000
"""Of a prompt, what is asked with: its end, where a pasted text's question stands."""
RECENT_TURNS = 24
"""Turns of a session that its agent still has before it after a compaction, which keeps about 20 messages."""
ALL_TURNS = 1_000_000
"""More than any session has: nothing of it was compacted, so all of it is before the agent."""
ANSWER_SHARE = 0.35
"""Of the budget, what one recall may take, so that of 8 sessions that ask at once, answered four by four, the last ones
are in time too. With .8 on 2 busy cores 3 of 48 blocks were."""
WARM_SECONDS = 60.0
NEWER_FIELDS = frozenset({"exclude_recent", "query_context"})
"""What an older service refuses to read, and is then asked without."""
_UNKNOWN_FIELD = 422
_CLOSING = "</recalled-memory>"
_CUT = "[…]"
_PROBE = {"query": "warm up", "k": 1}


class Recalling:
    """Recall for one session. Thread-safe, as far as its fields are replaced and not changed."""

    def __init__(
        self, service: Service, memory: Memory, pause: Pause, *, k: int, min_score: float, redact: bool
    ) -> None:
        self._service = service
        self._memory = memory
        self._k = k
        self._min_score = min_score
        self._redact = redact
        self._pause = pause
        self._known = NEWER_FIELDS
        """Of those, what the service has not refused."""
        self.in_context: Mapping[str, int] = {}
        """Session → how many of its newest turns the agent has before it."""

    @property
    def paused(self) -> bool:
        return self._pause.on

    def block(self, query: str, seconds: float, before: str = "") -> str:
        """The block for a prompt after `seconds` at the latest; empty when the service is away or late.

        `before`: the end of what was said before it, redacted already.
        """
        if self._pause.on:
            return ""
        try:
            answer = self.ask(query, seconds, **({"query_context": before} if before else {}))
        except (ScopeRecallError, RuntimeError) as error:  # RuntimeError: no thread can be started
            self._pause.failed(error, _patience(error))
            return ""
        self._pause.succeeded()
        context = answer.get("context")
        return bounded(context) if isinstance(context, str) and answer.get("hits") else ""

    def ask(self, query: str, seconds: float, **narrowed: Any) -> dict[str, Any]:
        """The service's answer. `narrowed`: more fields of the body. Raises `ServiceAway`, `ServiceRefused`."""
        body = self._memory.scope() | {
            "query": (redacted(query) if self._redact else query)[-MAX_QUERY_CHARS:].encode(errors="replace").decode(),
            "k": self._k,
            "deadline_ms": max(1, int(1000 * seconds * ANSWER_SHARE)),
            **({"min_score": self._min_score} if self._min_score else {}),
            **narrowed,
        }
        body |= self._left_out()
        while True:
            try:
                return self._service.ask("/v1/recall", self._as_known(body), seconds)
            except ServiceRefused as error:
                refused = {name for name in self._known if name in str(error)}
                if error.status != _UNKNOWN_FIELD or not refused:
                    raise
                self._known -= refused

    def warm(self) -> None:
        """Have the service load its models, and learn whether it is there, before anybody waits for it."""
        try:
            self._service.ask("/v1/recall", self._memory.scope() | _PROBE, WARM_SECONDS)
        except (RetryableError, UsageError) as error:
            log.debug("warming up: %s", error)

    def look_again(self, seconds: float) -> None:
        """Where the service is left alone: whether it is there now, asked while nobody waits."""
        if self._pause.on:
            try:
                self._service.ask("/v1/recall", self._memory.scope() | _PROBE, seconds)
            except ScopeRecallError:
                return
            self._pause.succeeded()

    def _left_out(self) -> dict[str, Any]:
        recent = [{"session_id": session, "turns": turns} for session, turns in self.in_context.items()]
        return {"exclude_recent": recent} if recent else {}

    def _as_known(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """The body in fields that the service knows; without that of newest turns, whole sessions are left out."""
        known = {name: value for name, value in body.items() if name in self._known or name not in NEWER_FIELDS}
        return known if "exclude_recent" in self._known else known | {"exclude_sessions": list(self.in_context)}


def _patience(error: Exception) -> float | None:
    """How long to leave the service alone. One that is late is there: the next turn asks again, within its budget."""
    if isinstance(error, ServiceLate):
        return 0.0
    return error.retry_after if isinstance(error, ServiceAway) else None


def bounded(block: str, limit: int = MAX_BLOCK_CHARS) -> str:
    """The block, cut at a line's end when the service is set to make larger ones than Hermes takes."""
    if len(block) <= limit:
        return block
    room = limit - len(_CUT) - len(_CLOSING) - 2
    cut = block.rfind("\n", 0, room)
    return f"{block[: cut if cut > 0 else room]}\n{_CUT}\n{_CLOSING}"
