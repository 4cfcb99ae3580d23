"""Every Redis key this project uses, in one place. No I/O.

All start with the `key_prefix` setting, RQ's own included, so that a Redis can be shared.
"""

from __future__ import annotations

from dataclasses import dataclass

from producers.settings import Lane

GROUP = "ingest"
"""The consumer group on both streams."""

EVENT_FIELD = b"event"
"""Stream entry field: the TurnEvent as JSON."""
ACCEPTED_FIELD = b"accepted"
"""Stream entry field, on entries that came out of a spool only: milliseconds since 1970 when it took them."""
ORDER_FIELD = b"order"
"""Stream entry field, on replayed entries only: the zero-padded id it first had, which decides between revisions."""
FIRST_DIED_FIELD = b"first_died_ms"
"""Stream entry field, on replayed entries only: when the event first became a dead letter, milliseconds since 1970."""
DEATHS_FIELD = b"deaths"
"""Stream entry field, on replayed entries only: how often the event has become a dead letter."""


@dataclass(frozen=True)
class Keys:
    """Keys under one prefix."""

    prefix: str

    def stream(self, lane: Lane) -> str:
        """Stream of accepted, not yet stored events."""
        return f"{self.prefix}:stream:{lane}"

    @property
    def dead(self) -> str:
        """Stream of dead letters."""
        return f"{self.prefix}:dead"

    def claim_cursor(self, lane: Lane) -> str:
        """String: where the next XAUTOCLAIM goes on. Carried, or the tail of a long pending list is never reached."""
        return f"{self.prefix}:claim-cursor:{lane}"

    @property
    def counters(self) -> str:
        """Hash of event counts since the beginning: an outcome of ingest, `dead`, `lost_entry` or `redelivered`."""
        return f"{self.prefix}:counters"

    @property
    def waiting(self) -> str:
        """String that expires by itself: what a worker waits for, while it does."""
        return f"{self.prefix}:waiting"

    @property
    def failures(self) -> str:
        """Hash entry id → why it last failed alone; removed when the entry is stored or buried."""
        return f"{self.prefix}:failures"

    def running(self, job: str) -> str:
        """String that expires by itself: who runs this maintenance job."""
        return f"{self.prefix}:running:{job}"

    def spool_mark(self, file: str) -> str:
        """String that expires by itself: up to which offset this spool file is on the stream."""
        return f"{self.prefix}:spool:{file}"

    @property
    def rq_prefix(self) -> str:
        """Prefix of RQ's own keys."""
        return f"{self.prefix}:rq"

    @staticmethod
    def queue(lane: str) -> str:
        """RQ queue name of a lane, or of `maintenance`."""
        return f"scope-recall-{lane}"
