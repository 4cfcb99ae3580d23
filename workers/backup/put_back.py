"""Puts what was on its way back into an empty Redis: entries with their own ids, so that revisions keep their order.

Does I/O. What was spooled is sent, behind what was on the streams, as it would have been.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import msgpack
import redis

from producers.connection import mapped_errors
from producers.errors import BadBackup, UsageError
from producers.keys import ACCEPTED_FIELD, EVENT_FIELD, GROUP, Keys
from producers.settings import LANES, Settings
from workers.backup.manifest import CopiedStream, OnTheWay
from workers.backup.on_the_way import DEAD_FILE, NOTHING, SPOOL_FILE, stream_file
from workers.ledger import RANGE_PAGE

READ_BYTES = 1 << 20
MAX_RECORD_BYTES = 1 << 30


def records(path: Path) -> Iterator[Any]:
    """What was written to `path`, record by record. Raises `BadBackup`."""
    with path.open("rb") as file:
        unpacker = msgpack.Unpacker(file, raw=True, read_size=READ_BYTES, max_buffer_size=MAX_RECORD_BYTES)
        try:
            yield from unpacker
        except (ValueError, msgpack.UnpackException):
            raise BadBackup(f"{path} is damaged: take another backup") from None


def counted(folder: Path, way: OnTheWay) -> Counter[str]:
    """What the files hold, by lane, `dead` and `spooled`."""
    found: Counter[str] = Counter()
    if way.streams is not None:
        for lane in LANES:
            found[lane] = sum(1 for _ in records(folder / stream_file(lane)))
        found["dead"] = sum(1 for _ in records(folder / DEAD_FILE))
    found["spooled"] = sum(1 for _ in _unsent(folder, way))
    return found


def expected(way: OnTheWay) -> Counter[str]:
    """The same from the manifest."""
    found: Counter[str] = Counter(spooled=sum(way.spooled.values()))
    if way.streams is not None and way.dead is not None:
        found.update({lane: copied.entries for lane, copied in way.streams.items()})
        found["dead"] = way.dead.entries
    return found


class RedisPlace:
    """The keys of one prefix, where a backup's turns go. Raises `StreamUnavailable` where Redis cannot be used."""

    def __init__(self, client: redis.Redis, settings: Settings) -> None:
        self._client: Any = client  # redis-py types an answer as every form it could be decoded to; ours are bytes
        self._settings = settings
        self._keys = Keys(settings.key_prefix)

    @property
    def _streams(self) -> list[str]:
        return [*map(self._keys.stream, LANES), self._keys.dead]

    def taken(self) -> str | None:
        """The first stream that is not empty."""
        with mapped_errors(self._settings):
            return next((stream for stream in self._streams if self._client.xlen(stream)), None)

    def clear(self) -> None:
        """Take the streams away, also their last ids, behind which nothing older can be put."""
        with mapped_errors(self._settings):
            self._client.delete(*self._streams, self._keys.failures)

    def put_back(self, folder: Path, way: OnTheWay, on_entries: Callable[[int, int], None]) -> None:
        """Everything that was on its way; the streams must be empty."""
        total, done = expected(way).total(), 0

        def report(count: int) -> None:
            nonlocal done
            done += count
            on_entries(done, total)

        with mapped_errors(self._settings):
            for lane in LANES:
                stream = self._keys.stream(lane)
                self._client.xgroup_create(stream, GROUP, id="0", mkstream=True)
                if way.streams is not None:
                    self._fill(stream, records(folder / stream_file(lane)), report)
                    self._go_on_behind(stream, way.streams[lane])
            if way.dead is not None:
                self._fill(self._keys.dead, records(folder / DEAD_FILE), report)
                if way.dead.entries:
                    self._go_on_behind(self._keys.dead, way.dead)
            for lane in LANES:
                spooled = (
                    (b"*", {EVENT_FIELD: payload, ACCEPTED_FIELD: accepted})
                    for of, accepted, payload in _unsent(folder, way)
                    if of == lane
                )
                self._fill(self._keys.stream(lane), spooled, report)

    def check(self, way: OnTheWay) -> None:
        """Compare what is there with the manifest. Raises `UsageError`."""
        wanted = {
            self._keys.stream(lane): (way.streams[lane].entries if way.streams else 0) + way.spooled[lane]
            for lane in LANES
        }
        wanted[self._keys.dead] = way.dead.entries if way.dead else 0
        with mapped_errors(self._settings):
            for stream, entries in wanted.items():
                found = self._client.xlen(stream)
                if found != entries:
                    raise UsageError(f"stream {stream} has {found:,} entries instead of {entries:,}: {_OTHERS}")

    def _fill(self, stream: str, rows: Iterable[tuple[bytes, Any]], report: Callable[[int], None]) -> None:
        rows = iter(rows)
        while page := list(islice(rows, RANGE_PAGE)):
            pipeline = self._client.pipeline(transaction=False)
            for entry_id, fields in page:
                pipeline.xadd(stream, fields, id=entry_id)
            try:
                pipeline.execute()
            except redis.ResponseError as error:
                if "equal or smaller" in str(error):
                    raise UsageError(f"stream {stream} was appended to during the restore: {_OTHERS}") from None
                raise
            report(len(page))

    def _go_on_behind(self, stream: str, copied: CopiedStream) -> None:
        """New entries come after all that were, also where this machine's clock is behind the other's."""
        if copied.last_id != NOTHING:
            self._client.execute_command("XSETID", stream, copied.last_id)


_OTHERS = "stop whatever pushes or works on this Redis, then restore again"


def _unsent(folder: Path, way: OnTheWay) -> Iterator[tuple[str, int, bytes]]:
    """(lane, accepted milliseconds, event) of what no stream had yet."""
    for lane, name, end, accepted, payload in records(folder / SPOOL_FILE):
        if end > way.spool_sent.get(name.decode(), 0):
            yield lane.decode(), accepted, payload
