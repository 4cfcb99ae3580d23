"""Appends what requests push to the stream, on one thread. Does I/O on Redis, and on the spool while Redis is away.

What comes while an append is under way goes into the next one together, so that many callers share a round trip and the
disk's answer to it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from threading import Thread

from producers.connection import connect_briefly
from producers.errors import StreamFull
from producers.events import TurnEvent
from producers.high_water import STEP_EVENTS
from producers.settings import Settings
from producers.stream import EventStream

PATIENCE_SECONDS = 1.0
"""How long an append waits for room: the caller waits better than the service, which holds everybody's turns."""
MOST_HELD = 20_000
"""Turns in memory that are not yet appended."""

Pushed = tuple[Sequence[TurnEvent], "Future[None]"]


class Appender:
    """The service's place on the live stream."""

    def __init__(self, settings: Settings) -> None:
        patience = min(settings.append_timeout, PATIENCE_SECONDS)
        hurried = settings.model_copy(update={"append_timeout": patience})
        self._stream = EventStream(hurried, client=connect_briefly(settings))
        self._queue: SimpleQueue[Pushed | None] = SimpleQueue()
        self._held = 0
        self._thread = Thread(target=self._work, name="appender", daemon=True)
        self._thread.start()

    async def append(self, events: Sequence[TurnEvent]) -> None:
        """Returns when all of them are accepted; errors as `EventStream.append`, after which all may be sent again."""
        if self._held + len(events) > MOST_HELD:
            raise StreamFull(
                f"{self._held:,} turns wait for Redis in the service already; nothing of these is accepted"
            )
        self._held += len(events)  # by the loop's thread alone
        accepted: Future[None] = Future()
        self._queue.put((events, accepted))
        try:
            await asyncio.wrap_future(accepted)
        finally:
            self._held -= len(events)

    def close(self) -> None:
        """Append what was taken, send what is spooled if that can be done at once, and let go."""
        self._queue.put(None)
        self._thread.join()
        self._stream.close()

    def _work(self) -> None:
        going_on = True
        while going_on:
            first = self._queue.get()
            if first is None:
                return
            together = [first]
            going_on = self._take_others(together)
            wanted = [(events, accepted) for events, accepted in together if accepted.set_running_or_notify_cancel()]
            try:
                self._stream.append(event for events, _ in wanted for event in events)
            except Exception as error:  # noqa: BLE001  # each caller gets it, and the thread goes on
                for _, accepted in wanted:
                    accepted.set_exception(error)
            else:
                for _, accepted in wanted:
                    accepted.set_result(None)

    def _take_others(self, together: list[Pushed]) -> bool:
        """Add what waits, about a round trip of it; False when the service closes."""
        count = len(together[0][0])
        while count < STEP_EVENTS:
            try:
                more = self._queue.get_nowait()
            except Empty:
                return True
            if more is None:
                return False
            together.append(more)
            count += len(more[0])
        return True
