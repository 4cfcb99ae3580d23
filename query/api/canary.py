"""Whether the whole path works: a turn that the service pushed itself was recalled lately. Does I/O through the path.

A canary goes on its way when somebody asks and the last success is too old, so an idle system has none. It is one turn,
which every canary revises; while it is on its way no second one is sent.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from producers.errors import NotReady, ScopeRecallError
from producers.events import CANARY_TENANT, TurnEvent
from producers.logs import get_logger
from query.answer import Answer
from query.question import Question
from workers.stores.scope import Scope

PATIENCE_SECONDS = 5.0
"""How long a caller waits for a canary that is on its way."""
FLIGHT_SECONDS = 30.0
"""How long one attempt looks for it."""
LOST_SECONDS = 600.0
"""After this time a canary that was never recalled is taken for lost, and another one is sent."""
LOOK_SECONDS = 0.2
QUESTION = Question("Where is the canary?", Scope(tenant=CANARY_TENANT), k=1)

log = get_logger(__name__)


@dataclass(frozen=True)
class Readiness:
    """What `/readyz` tells."""

    ready: bool
    proved_seconds_ago: float | None
    """Since the last success; None: never since the service started."""
    missing: str | None
    """What keeps it from working."""
    degraded: tuple[str, ...] = ()
    """What made the last answer poorer than it could be."""


class Canary:
    """The service's own turn. For one event loop."""

    def __init__(
        self,
        push: Callable[[Sequence[TurnEvent]], Awaitable[None]],
        recall: Callable[[Question], Awaitable[Answer]],
        fresh_seconds: float,
    ) -> None:
        self._push = push
        self._recall = recall
        self._fresh = fresh_seconds
        self._attempt: asyncio.Task[None] | None = None
        self._sent: tuple[str, float] | None = None
        """What is on its way, and since when by `time.monotonic()`."""
        self._proved: float | None = None
        self._missing: str | None = None
        self._degraded: tuple[str, ...] = ()

    async def readiness(self) -> Readiness:
        """Whether the path has worked lately; sends a canary and waits a little when that is not known."""
        if not self._is_fresh():
            if self._attempt is None or self._attempt.done():
                self._attempt = asyncio.create_task(self._try())
            await asyncio.wait({self._attempt}, timeout=PATIENCE_SECONDS)
        ago = None if self._proved is None else round(time.monotonic() - self._proved, 1)
        if self._is_fresh():
            return Readiness(True, ago, None, self._degraded)
        return Readiness(False, ago, self._missing or "the canary is on its way; ask again in some seconds")

    def _is_fresh(self) -> bool:
        return self._proved is not None and time.monotonic() < self._proved + self._fresh

    async def _try(self) -> None:
        """One attempt; its outcome is in the attributes."""
        now = time.monotonic()
        try:
            if self._sent is None or now > self._sent[1] + LOST_SECONDS:
                step = "a turn cannot be pushed"
                event = canary_at(datetime.now(UTC))
                await self._push([event])
                self._sent = (event.content, now)
            step = "recall fails"
            while time.monotonic() < now + FLIGHT_SECONDS:
                if await self._arrived(self._sent[0]):
                    self._proved, self._sent, self._missing = time.monotonic(), None, None
                    return
                await asyncio.sleep(LOOK_SECONDS)
        except Exception as error:  # noqa: BLE001  # whatever it is, the path does not work; the log says where
            reason = str(error) if isinstance(error, ScopeRecallError) else type(error).__name__
            self._missing = f"{step} ({type(error).__name__}); the service's log says more"
            log.warning("canary_failed", step=step, reason=reason)
            return
        self._missing = "a turn that was accepted is not stored: see that Redis, the intake and a worker run"
        log.warning("canary_failed", step=self._missing)

    async def _arrived(self, content: str) -> bool:
        """Whether this canary, or a later one of another service, can be recalled."""
        try:
            answer = await self._recall(QUESTION)
        except NotReady:  # it may be the first turn of all
            return False
        self._degraded = tuple(answer.degraded)
        return any(hit.content >= content for hit in answer.hits)


def canary_at(moment: datetime) -> TurnEvent:
    """The turn as it is said at this moment; a later one's content sorts behind it. Pure."""
    content = f"The canary was here at {moment.isoformat(timespec='microseconds')}."
    always = {"tenant": CANARY_TENANT, "session_id": "canary", "turn_index": 0, "role": "system", "source": "canary"}
    return TurnEvent.model_validate(always | {"content": content})
