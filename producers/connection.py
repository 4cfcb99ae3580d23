"""The connection to Redis and the mapping of its errors. Does I/O."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import redis
from redis.backoff import ExponentialBackoff
from redis.exceptions import AuthenticationError, AuthorizationError, BusyLoadingError
from redis.retry import Retry

from producers.errors import SettingsError, StreamAway, StreamFull, StreamUnavailable
from producers.settings import Settings, without_password

FIRST_WAIT = 0.05
LONGEST_WAIT = 2.0
"""Seconds between two attempts; a Redis that restarts is back within a few of these."""
CONNECT_TIMEOUT = 5.0
SOCKET_TIMEOUT = 30.0
"""Seconds; longer than any blocking read here asks Redis to wait."""
BRIEF_CONNECT, BRIEF_ANSWER = 0.5, 1.0
"""The same for those whom somebody waits for: a Redis that hangs is as good as away."""

TRANSIENT = (redis.exceptions.ConnectionError, redis.exceptions.TimeoutError, BusyLoadingError)
_NEVER_PASSES = (AuthenticationError, AuthorizationError)
"""Connection errors to redis-py; a wrong password stays wrong."""
_PASSING_REFUSALS = ("MISCONF", "READONLY", "MASTERDOWN", "CLUSTERDOWN", "NOREPLICAS", "TRYAGAIN")
"""What Redis says while its disk is full or a failover is under way."""


def connect(
    settings: Settings,
    *,
    patience: float = 0.0,
    connect_timeout: float = CONNECT_TIMEOUT,
    socket_timeout: float = SOCKET_TIMEOUT,
) -> redis.Redis:
    """A client that answers in bytes. Each call is tried again for about `patience` seconds while Redis is away.

    The time-outs are in seconds. Raises `SettingsError` for a URL that is none.
    """
    attempts = int(patience / LONGEST_WAIT) + (5 if patience else 0)
    try:
        return redis.Redis.from_url(
            settings.redis_location,
            socket_connect_timeout=connect_timeout,
            socket_timeout=socket_timeout,
            retry=Retry(ExponentialBackoff(cap=LONGEST_WAIT, base=FIRST_WAIT), attempts),
            retry_on_error=list(TRANSIENT),
        )
    except ValueError as error:
        raise SettingsError(f"setting redis_url = {safe_location(settings)!r}: {error}") from None


def connect_briefly(settings: Settings) -> redis.Redis:
    """As `connect`, for a caller that gives up on a Redis that says nothing for a second."""
    return connect(settings, connect_timeout=BRIEF_CONNECT, socket_timeout=BRIEF_ANSWER)


@contextmanager
def mapped_errors(settings: Settings) -> Iterator[None]:
    """Map Redis' errors onto ours, naming the address and what to do."""
    try:
        yield
    except redis.exceptions.OutOfMemoryError as error:
        raise StreamFull(
            f"Redis at {safe_location(settings)} is out of memory ({said(error)}): let the workers drain it, or raise "
            "its maxmemory. What was accepted is safe, and pushing all of it again is too"
        ) from None
    except TRANSIENT as error:
        kind = StreamUnavailable if isinstance(error, _NEVER_PASSES) else StreamAway
        start = "start it again" if settings.redis_url else "start `scope-recall up` for this data dir"
        raise kind(
            f"no Redis at {safe_location(settings)} ({said(error)}): {start}, "
            "or set redis_url (SCOPE_RECALL_REDIS_URL) to a running one"
        ) from None
    except redis.exceptions.RedisError as error:  # read-only, no permission, a full disk, a key of another kind
        kind = StreamAway if _passes(error) else StreamUnavailable
        raise kind(f"Redis at {safe_location(settings)} refuses: {said(error)}") from None


def safe_location(settings: Settings) -> str:
    """The address without its password, fit for a message."""
    return without_password(settings.redis_url or f"unix://{settings.redis_socket}")


def _passes(refusal: redis.exceptions.RedisError) -> bool:
    return isinstance(refusal, redis.exceptions.ReadOnlyError) or said(refusal).startswith(_PASSING_REFUSALS)


def said(error: Exception) -> str:
    """What Redis said, on one line. redis-py puts the command in front, and in a command there is a turn's content."""
    text = str(error).rpartition("of pipeline caused error: ")[2]
    return (text.strip() or type(error).__name__).splitlines()[0]
