"""Handles on LanceDB tables: opened when first used, refreshed, retried, and their errors mapped. Does I/O.

LanceDB raises RuntimeError, ValueError and OSError without types of its own, so a conflict is told by its text.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from producers.errors import StoreDamaged, StoreUnavailable
from workers.stores.lance_schema import table_schema
from workers.stores.space import Space

T = TypeVar("T")

FOREIGN = (RuntimeError, ValueError, OSError)
"""What LanceDB raises, once `panics_as_errors` has seen to the rest."""
WRITE_ATTEMPTS = 8
"""With the pauses below about ten seconds: a compaction of a large table commits in less."""
WRITE_HINT = (
    "accepted turns are safe and are stored by themselves once it can be written: free space there, or make it writable"
)
DAMAGE_HINT = "`scope-recall maintain run reconcile` builds it anew from the catalog"
_MISSING = ("not found",)
_CUT_OFF = ("whole buffer", "invalid range", "sufficient data", "too small", "unexpected eof")
_OVERWRITTEN = ("failed to decode", "panicked", "corrupt", "magic", "trailing bytes", "empty buffers")
_ZEROED = ("does not exist in", "no field named", "legacy dataset")
"""Of a manifest of zeros, which reads as one without a column."""
_DAMAGE = _MISSING + _CUT_OFF + _OVERWRITTEN + _ZEROED
"""What LanceDB says of a broken file, as seen when each kind of file was cut and overwritten in many places."""
FIRST_PAUSE = 0.05
LONGEST_PAUSE = 4.0


class CacheBytes(NamedTuple):
    """Most that one process keeps of a location's indexes and of its tables' versions and files."""

    indexes: int
    metadata: int


WRITER_CACHE = CacheBytes(indexes=32 << 20, metadata=8 << 20)
"""For a process that writes all day: each commit and each index upkeep leaves entries behind that nobody asks for
again, and LanceDB's own bounds, 6 GiB and 1 GiB, let them grow with every batch. The key's index of 300,000 rows fits;
at 500,000 an upsert of 256 rows took 46 ms instead of 33."""


class LanceConnection:
    """Tables of one location by space. Safe to share between threads; never fork a process that has used it."""

    def __init__(self, location: str, cache: CacheBytes | None = None, behind: timedelta = timedelta(0)) -> None:
        """`behind`: how old what is read may be. Zero: each read looks for a newer version, so that what another
        process has committed is found."""
        self.location = location
        self._cache = cache
        self._behind = behind
        self._lock = threading.Lock()
        self._connection: Any = None
        self._tables: dict[str, Any] = {}

    def read(self, space: Space, operation: Callable[[Any], T], nothing: T) -> T:
        """`operation` on the space's table as last committed by any process; `nothing` where there is no table.

        A failing read is repeated once on a fresh handle: full-text search can fail on a handle whose index files an
        optimize has replaced (lance#7508). Raises `StoreUnavailable`.
        """
        try:
            return self._apply(space, operation, nothing)
        except FOREIGN:
            self._forget(space)
        try:
            return self._apply(space, operation, nothing)
        except FOREIGN as error:
            self._forget(space)
            raise self._unavailable("reading", space, error) from error

    def write(self, space: Space, operation: Callable[[Any], T], *, create: bool = False) -> T | None:
        """`operation` on the space's table, repeated with back-off when another writer committed first.

        `create` makes a missing table, otherwise None is returned for it. Raises `StoreUnavailable`.
        """
        attempt = 0
        while True:
            attempt += 1
            try:
                with panics_as_errors():
                    table = self._create(space) if create else self._open(space)
                    return None if table is None else operation(table)
            except FOREIGN as error:
                self._forget(space)
                if is_damage(error) and attempt == 1:
                    continue  # the table was removed or replaced under its handle; a fresh one sees it as it is
                if attempt == WRITE_ATTEMPTS or not is_conflict(error):
                    raise self._unavailable("writing", space, error) from error
            time.sleep(pause(attempt))

    def drop(self, space: Space) -> None:
        """Delete the space's table with all its files; nothing where there is none. Raises `StoreUnavailable`."""
        self._forget(space)
        if "://" not in self.location and not Path(self.location).exists():
            return
        try:
            self.connect().drop_table(space.id, ignore_missing=True)
        except FOREIGN as error:
            raise self._unavailable("writing", space, error) from error

    def _apply(self, space: Space, operation: Callable[[Any], T], nothing: T) -> T:
        with panics_as_errors():
            table = self._open(space)
            return nothing if table is None else operation(table)

    def _open(self, space: Space) -> Any | None:
        """The table, or None; creates nothing, not even the folder that `lancedb.connect` would make."""
        table = self._tables.get(space.id)
        if table is not None:
            return table
        if self._connection is None and "://" not in self.location and not Path(self.location).exists():
            return None
        try:
            table = self.connect().open_table(space.id)
        except ValueError as error:
            if "was not found" in str(error):
                return None
            raise
        return self._tables.setdefault(space.id, table)

    def _create(self, space: Space) -> Any:
        table = self._open(space)
        if table is not None:
            return table
        table = self.connect().create_table(space.id, schema=table_schema(space.dimension), exist_ok=True)
        return self._tables.setdefault(space.id, table)

    def connect(self) -> Any:
        """The connection, made at the first call."""
        with self._lock:
            if self._connection is None:
                # Lance warns on stderr, once a process, that index statistics carry centroids; nobody here reads them.
                os.environ.setdefault("LANCE_INCLUDE_VECTOR_CENTROIDS", "false")
                import lancedb

                session = lancedb.Session(*self._cache) if self._cache else None
                self._connection = lancedb.connect(
                    self.location, read_consistency_interval=self._behind, session=session
                )
            return self._connection

    def _forget(self, space: Space) -> None:
        self._tables.pop(space.id, None)

    def _unavailable(self, doing: str, space: Space, error: BaseException) -> StoreUnavailable:
        reason = " ".join(str(error).split(", /", 1)[0].split())
        hint = WRITE_HINT if doing == "writing" else "try again"
        if is_conflict(error):
            hint = f"{WRITE_ATTEMPTS} attempts met another writer; lower the number of workers, or try again"
        table = f"vector store {self.location}, table {space.id}"
        if is_damage(error):
            return StoreDamaged(f"{table} is damaged: {doing} failed: {reason}; {DAMAGE_HINT}")
        return StoreUnavailable(f"{table}: {doing} failed: {reason}; {hint}")


@contextmanager
def panics_as_errors() -> Iterator[None]:
    """A panic in LanceDB is of a type that no module exports; as a `RuntimeError` it is caught with the rest."""
    try:
        yield
    except Exception as error:
        if type(error).__name__ != "RustPanic":
            raise
        raise RuntimeError(str(error)) from error


def is_damage(error: BaseException) -> bool:
    """Whether a file of the table is missing or broken, rather than out of reach."""
    text = str(error).lower()
    return any(sign in text for sign in _DAMAGE) and not is_conflict(error)


def is_conflict(error: BaseException) -> bool:
    """Whether another writer committed first, so that the same write may succeed now."""
    text = str(error).lower()
    return any(sign in text for sign in ("commit conflict", "concurrent", "already exists"))


def pause(attempt: int) -> float:
    """Seconds to wait after the given failed attempt (1, 2, …): exponential with full jitter, so that writers part."""
    return random.uniform(0, min(LONGEST_PAUSE, FIRST_PAUSE * 2**attempt))
