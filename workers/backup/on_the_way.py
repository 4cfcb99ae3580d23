"""Turns on their way in a backup: stream entries, dead letters and spooled events, as they are. Does I/O on Redis.

Read twice: all of it before the stores are looked at, and what has come since while nothing can be stored. So an event
that was accepted before is in this copy or in the catalog's. One in both is no harm: it keeps its id, by which ingest
knows it. What is spooled gets a newer id when it is sent, so that must not be in both; hence the marks of how far each
spool file was sent, read at the moment where the streams' copy ends.
"""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgpack
import redis

from producers.connection import mapped_errors
from producers.keys import ORDER_FIELD, Keys
from producers.settings import LANES, Lane, Settings
from producers.spool import spool_records
from workers.backup.manifest import CopiedStream, OnTheWay, private_file, sync
from workers.ledger import RANGE_PAGE
from workers.order import entry_order

DEAD_FILE = "streams/dead.msgpack"
SPOOL_FILE = "streams/spool.msgpack"
NOTHING = "0-0"

Seen = set[tuple[bytes, str]]
"""(lane, zero-padded first id) of what is copied: what moves meanwhile is copied once, where it was first seen."""


def stream_file(lane: Lane) -> str:
    """The lane's file in a backup."""
    return f"streams/{lane}.msgpack"


FILES = (*map(stream_file, LANES), DEAD_FILE, SPOOL_FILE)


class StreamCopy:
    """Copies one stream into a file, going on where it stopped."""

    def __init__(self, client: redis.Redis, stream: str, lane: bytes, path: Path, seen: Seen) -> None:
        """`lane`: of entries that name none, as dead letters do."""
        self._client: Any = client  # redis-py types an answer as every form it could be decoded to; ours are bytes
        self.stream = stream
        self._lane = lane
        self._seen = seen
        self._file = private_file(path)
        self._read_to = NOTHING
        self.entries = 0

    def catch_up(self, last: str) -> None:
        """Copy what is there behind the last entry that was read, up to the id `last`."""
        while rows := self._client.xrange(self.stream, min=f"({self._read_to}", max=last, count=RANGE_PAGE):
            for entry_id, fields in rows:
                first = fields.get(ORDER_FIELD)
                known = (fields.get(b"lane", self._lane), first.decode() if first else entry_order(entry_id.decode()))
                if known not in self._seen:
                    self._seen.add(known)
                    self._file.write(msgpack.packb((entry_id, fields)))
                    self.entries += 1
            self._read_to = rows[-1][0].decode()

    def copied(self, last: str) -> CopiedStream:
        return CopiedStream(entries=self.entries, last_id=last)

    def close(self) -> None:
        """Onto the disk."""
        if not self._file.closed:
            with self._file:
                sync(self._file)


class SpoolCopy:
    """Copies what this data dir's spool holds for the Redis of the settings."""

    def __init__(self, settings: Settings, path: Path) -> None:
        self._settings = settings
        self._file = private_file(path)
        self._ends: list[tuple[Lane, str, int]] = []
        self._is_read = False

    @property
    def names(self) -> list[str]:
        """The spool files that were read."""
        return list(dict.fromkeys(name for _, name, _ in self._ends))

    def read(self) -> None:
        """Once; repeating it does nothing."""
        if self._is_read:
            return
        self._is_read = True
        for lane, name, record in spool_records(self._settings):
            self._file.write(msgpack.packb((lane, name, record.end, record.accepted_ms, record.payload)))
            self._ends.append((lane, name, record.end))

    def unsent(self, sent: dict[str, int]) -> dict[Lane, int]:
        """Events behind their file's mark, by lane."""
        waiting = Counter(lane for lane, name, end in self._ends if end > sent.get(name, 0))
        return {lane: waiting[lane] for lane in LANES}

    def close(self) -> None:
        """Onto the disk."""
        if not self._file.closed:
            with self._file:
                sync(self._file)


class RedisCopy:
    """Copies the streams and the dead letters. Raises `StreamUnavailable` where Redis cannot be read."""

    def __init__(self, client: redis.Redis, settings: Settings, folder: Path) -> None:
        self._client: Any = client
        self._settings = settings
        keys, seen = Keys(settings.key_prefix), Seen()
        self._keys = keys
        self._lanes: dict[Lane, StreamCopy] = {
            lane: StreamCopy(client, keys.stream(lane), lane.encode(), folder / stream_file(lane), seen)
            for lane in LANES
        }
        self._dead = StreamCopy(client, keys.dead, b"dead", folder / DEAD_FILE, seen)

    def first_look(self) -> None:
        """All of it, while everything goes on. Letters first: one that is replayed then is found on its stream."""
        with mapped_errors(self._settings):
            for copy in (self._dead, *self._lanes.values()):
                copy.catch_up(self._last_ids([copy])[0])

    def second_look(self, spool: SpoolCopy) -> OnTheWay:
        """What has come since, while nothing can be stored."""
        with mapped_errors(self._settings):
            self._dead.catch_up(self._last_ids([self._dead])[0])
            spool.read()
            names = spool.names
            lanes = list(self._lanes.values())
            *last, marks = self._last_ids(lanes, [self._keys.spool_mark(name) for name in names])
            for copy, last_id in zip(lanes, last, strict=True):
                copy.catch_up(last_id)
            dead = self._last_ids([self._dead])[0]
            self._dead.catch_up(dead)  # what died while the streams were read
        sent = {name: int(mark) for name, mark in zip(names, marks, strict=True) if mark}
        streams = {lane: copy.copied(last_id) for (lane, copy), last_id in zip(self._lanes.items(), last, strict=True)}
        return OnTheWay(streams=streams, dead=self._dead.copied(dead), spooled=spool.unsent(sent), spool_sent=sent)

    def _last_ids(self, copies: list[StreamCopy], marks: list[str] | None = None) -> list[Any]:
        """The last id that each stream has given; with `marks`, their values of the same moment behind them."""
        pipeline = self._client.pipeline(transaction=True)
        for copy in copies:
            pipeline.xinfo_stream(copy.stream)
        if marks:
            pipeline.mget(marks)
        answers = pipeline.execute(raise_on_error=False)
        for answer in answers:
            if isinstance(answer, Exception) and "no such key" not in str(answer):
                raise answer
        found: list[Any] = [
            NOTHING if isinstance(answer, Exception) else answer["last-generated-id"].decode()
            for answer in answers[: len(copies)]
        ]
        return found if marks is None else [*found, answers[-1] if marks else []]

    def close(self) -> None:
        """Onto the disk; one that fails does not leave the others open."""
        with ExitStack() as closing:
            for copy in (*self._lanes.values(), self._dead):
                closing.callback(copy.close)
