"""Locks over both stores: who may write vectors, and who may delete files under them. Does I/O.

Beside SQLite they are file locks, with PostgreSQL advisory locks, so they reach as far as the catalog does, and the
kernel or the server releases them when their holder dies.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.engine import Engine

from producers.errors import StoreUnavailable
from workers.stores.engine import mapped_errors, shown_url

GATE, PUBLISHING, MAINTAINING = "gate", "publishing", "maintaining"
_ADVISORY = {GATE: 0x5C0A0, PUBLISHING: 0x5C0A1, MAINTAINING: 0x5C0A2}
"""PostgreSQL's keys; `engine.WRITE_LOCK` is another."""


class StoreLocks:
    """The locks of one catalog. Each method is a context manager that waits for its lock. Not reentrant."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        url = engine.url
        self._path = Path(url.database) if url.get_backend_name() == "sqlite" and url.database else None

    @contextmanager
    def publishing(self) -> Iterator[None]:
        """Any number may write; between the catalog's commit and the end of the write to LanceDB."""
        with ExitStack() as held:
            with self._lock(GATE):  # whoever waits to erase holds it, or newcomers would keep it waiting for ever
                held.enter_context(self._lock(PUBLISHING, shared=True))
            yield

    @contextmanager
    def erasing(self) -> Iterator[None]:
        """Alone: every write that had begun has ended, none begins."""
        with self._lock(GATE), self._lock(PUBLISHING):
            yield

    def maintaining(self) -> AbstractContextManager[None]:
        """Alone among those who rewrite tables and indexes, which may take minutes; writers go on."""
        return self._lock(MAINTAINING)

    def _lock(self, name: str, *, shared: bool = False) -> AbstractContextManager[None]:
        return self._advisory_lock(name, shared) if self._path is None else self._file_lock(self._path, name, shared)

    @contextmanager
    def _file_lock(self, catalog: Path, name: str, shared: bool) -> Iterator[None]:
        path = catalog.with_suffix(f".{name}.lock")
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StoreUnavailable(f"catalog lock {path}: {error.strerror}") from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    @contextmanager
    def _advisory_lock(self, name: str, shared: bool) -> Iterator[None]:
        functions = sa.func.pg_advisory_lock_shared, sa.func.pg_advisory_unlock_shared
        lock, unlock = functions if shared else (sa.func.pg_advisory_lock, sa.func.pg_advisory_unlock)
        with mapped_errors(shown_url(self._engine.url)), self._engine.connect() as connection:
            # Outside a transaction: one that stays open would keep dead rows from being cleaned away.
            connection = connection.execution_options(isolation_level="AUTOCOMMIT")
            connection.execute(sa.select(lock(_ADVISORY[name])))
            try:
                yield
            finally:
                connection.execute(sa.select(unlock(_ADVISORY[name])))
