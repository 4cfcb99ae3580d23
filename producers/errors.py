"""Every error this project raises on purpose, as one tree. No I/O.

    ScopeRecallError
    ├── UsageError             the caller's mistake; the command exits with 2
    │   ├── SettingsError      a setting is unknown, misspelt or out of range
    │   ├── InvalidEvent       a turn event breaks a limit; names field, limit and value
    │   │   └── TurnsRejected  some turns of a push were not accepted, all others were
    │   ├── InvalidRequest     the query service refuses a field; names it
    │   └── ServiceRefused     the query service will not do what it was asked, such as without a key
    ├── RetryableError         the same call may succeed later; nothing was lost
    │   ├── StreamUnavailable  Redis cannot be used
    │   │   └── StreamAway     it does not answer, or refuses for a while: what is appended meanwhile is spooled
    │   ├── SpoolFull          Redis is away and the spool is at its bound, or its disk is full
    │   ├── StreamFull         the stream is at its high-water mark
    │   ├── EmbedderUnavailable  the embedding service does not answer or is overloaded
    │   ├── ServiceAway        the query service does not answer, or asks for patience
    │   │   └── ServiceLate    it does not answer in time; it may the next time
    │   ├── ModelAway          a language model's server does not answer, is overloaded or breaks off
    │   └── StoreUnavailable   the catalog or the vector store cannot be used right now
    │       └── StoreDamaged   files of a vector table are missing or broken; it is built anew from the catalog
    ├── PoisonError            this event can never be stored; it becomes a dead letter
    ├── ModelError             a model cannot be loaded or must not be used; names it
    ├── UnexpectedAnswer       what answers at the URL is not the query service, or failed in it
    └── NotReady               the data dir, catalog or a process that is needed is not there
        ├── Busy               somebody else is doing this very job
        └── BadBackup          a backup is damaged, not whole, or of a later version

Foreign exceptions are mapped onto this tree in the adapter that meets them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


class ScopeRecallError(Exception):
    """Root of the tree. Its message is written for the person who reads it."""


class UsageError(ScopeRecallError):
    """The caller asked for something that cannot be done as asked."""


class SettingsError(UsageError):
    """A setting is unknown, misspelt or out of range."""


class InvalidEvent(UsageError):
    """A turn event breaks a limit."""

    def __init__(self, message: str, *, without_values: str | None = None, field: str = "") -> None:
        super().__init__(message)
        self.field = field
        """The first field that is wrong; empty when it is the event as a whole."""
        self.without_values = without_values or message
        """The message for logs and dead letters, which never hold what a turn says."""


@dataclass(frozen=True)
class Rejected:
    """A turn that was not accepted."""

    position: int
    """Among the turns of the call, from 0."""
    reason: str


class TurnsRejected(InvalidEvent):
    """Some turns of a push were not accepted; all others were."""

    def __init__(self, accepted: int, count: int, rejected: Sequence[Rejected]) -> None:
        shown = "; ".join(f"turn {one.position}: {one.reason}" for one in rejected[:3])
        more = f"; and {count - 3:,} more" if count > 3 else ""
        text = f"{count:,} of {count + accepted:,} turns were rejected, the others are accepted"
        super().__init__(f"{text}: {shown}{more}", without_values=text)
        self.accepted = accepted
        self.rejected = tuple(rejected)
        """The first thousand at most."""


class InvalidRequest(UsageError):
    """The query service refuses a request as it is."""

    def __init__(self, message: str, field: str | None = None) -> None:
        super().__init__(message)
        self.field = field
        """What is wrong: `k`, `sessions.0`; None when it is no single field."""


class ServiceRefused(UsageError):
    """The query service answers, and will not do what it was asked: it wants a key, another one, or more rights."""

    def __init__(self, message: str, *, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status
        """HTTP status."""


class RetryableError(ScopeRecallError):
    """The same call may succeed later."""


class StreamUnavailable(RetryableError):
    """Redis cannot be used."""


class StreamAway(StreamUnavailable):
    """Redis does not answer, or refuses for a reason that passes, such as a restart, a failover or a full disk."""


class SpoolFull(RetryableError):
    """Redis does not take events now, and the spool cannot keep more; what it keeps is safe."""


class StreamFull(RetryableError):
    """The stream stayed at its high-water mark for as long as the caller would wait."""


class EmbedderUnavailable(RetryableError):
    """The embedding service does not answer, or asks for patience."""

    def __init__(self, message: str, *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        """Seconds the service asked to wait, when it said so."""


class ServiceAway(RetryableError):
    """The query service does not answer, or asks for patience."""

    def __init__(self, message: str, *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        """Seconds the service asked to wait, when it said so."""


class ServiceLate(ServiceAway):
    """The query service does not answer in time, as on a busy machine; it may the next time."""


class ModelAway(RetryableError):
    """A language model's server does not answer, is overloaded or breaks off."""


class StoreUnavailable(RetryableError):
    """The catalog or the vector store cannot be used right now."""


class StoreDamaged(StoreUnavailable):
    """Files of a vector table are missing or broken; the job `reconcile` builds it anew from the catalog."""


class PoisonError(ScopeRecallError):
    """This event can never be stored."""


class ModelError(ScopeRecallError):
    """A model cannot be loaded, or must not be used."""


class UnexpectedAnswer(ScopeRecallError):
    """What answers at the URL is not the query service, is of another version, or failed on a mistake of its own."""


class NotReady(ScopeRecallError):
    """The data dir, the catalog or a process that is needed is not there."""


class Busy(NotReady):
    """Somebody else is doing this very job; two at once would undo each other's work."""


class BadBackup(NotReady):
    """A backup cannot be restored: it is none, is damaged or not whole, or a later version of this program wrote it."""
