"""Keeps the lease of a batch while a worker works on it: a thread that tells the ledger so. Does I/O on Redis."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Event, Thread
from types import TracebackType

import redis

from producers.logs import get_logger
from workers.ledger import Ledger

RENEWALS = 3
"""Renewals within one lease, so that one that comes late does no harm."""

log = get_logger(__name__)


class Lease:
    """Context manager: the entries are leased from entry to exit."""

    def __init__(self, ledger: Ledger, entry_ids: Sequence[str], seconds: float) -> None:
        self._ledger = ledger
        self._entry_ids = entry_ids
        self._interval = seconds / RENEWALS
        self._done = Event()
        self._thread = Thread(target=self._keep, name="lease", daemon=True)

    def __enter__(self) -> Lease:
        self._ledger.renew(self._entry_ids)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        self._thread.join()

    def _keep(self) -> None:
        while not self._done.wait(self._interval):
            try:
                self._ledger.renew(self._entry_ids)
            except redis.exceptions.RedisError as error:
                # The worst that follows is a second delivery, which changes nothing.
                log.warning("lease_not_renewed", error=str(error))
