"""The pending list of a stream, as the project's ledger of what is accepted and not yet stored. Does I/O on Redis.

An entry is leased by whoever works on it: an entry idle for longer than the lease is abandoned. Intake keeps the lease
of what waits in RQ, a worker keeps the lease of what it works on. RQ's own records decide nothing.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import redis
from redis.exceptions import OutOfMemoryError, ResponseError

from producers.keys import ACCEPTED_FIELD, DEATHS_FIELD, EVENT_FIELD, FIRST_DIED_FIELD, GROUP, ORDER_FIELD, Keys
from producers.settings import Lane, Settings
from workers.order import entry_order, milliseconds_of, order_at

RANGE_PAGE = 128
"""Entries fetched in one round trip; at the content limit of 1 MiB that is 128 MiB."""
_SETTLE = """
local entries = {unpack(ARGV, 2)}
redis.call('xack', KEYS[1], ARGV[1], unpack(entries))
redis.call('xdel', KEYS[1], unpack(entries))
redis.call('hdel', KEYS[2], unpack(entries))
"""
"""All or nothing, as in a transaction; but a Redis at its maxmemory refuses to queue even an XACK in one of those."""
_FIGURES_CAN_WAIT = suppress(OutOfMemoryError)
"""A Redis at its maxmemory still acknowledges and deletes; what it refuses to note is no reason to fail a batch."""
IDLE_CONSUMER_MS = 3_600_000
"""A consumer without pending entries that has been silent for this long is gone for good."""
_BURY = """
redis.call('XACK', KEYS[1], ARGV[1], ARGV[2])
if redis.call('XDEL', KEYS[1], ARGV[2]) == 0 then return 0 end
redis.call('XADD', KEYS[2], '*', unpack(ARGV, 3))
redis.call('HDEL', KEYS[3], ARGV[2])
redis.call('HINCRBY', KEYS[4], 'dead', 1)
return 1
"""
"""Keys: stream, dead letters, failures, counters; arguments: group, entry id, then the letter's fields."""


@dataclass(frozen=True)
class Entry:
    """A stream entry: its id and the event's JSON."""

    id: str
    payload: bytes
    order: str
    """Zero-padded entry id that decides between revisions; a replayed entry keeps its first one."""
    accepted: str | None = None
    """The order of the moment when it was accepted into a spool; None: it came onto the stream at once."""
    deaths: int = 0
    """How often it has been a dead letter before."""
    first_died_ms: int | None = None
    """When it first became one, milliseconds since 1970."""

    @property
    def accepted_ms(self) -> int:
        """When the stream first took it, milliseconds since 1970."""
        return milliseconds_of(self.order)


@dataclass(frozen=True)
class Claimed:
    """Abandoned entries taken over in one step."""

    entries: list[tuple[Entry, int]]
    """Each with how often it has been delivered, this time included."""
    lost: int
    """Pending entries whose data is no longer in the stream (trimmed by someone else); acknowledged and counted."""


class Ledger:
    """One lane's stream and consumer group, under one consumer name."""

    def __init__(self, client: redis.Redis, settings: Settings, lane: Lane, consumer: str) -> None:
        self._client: Any = client  # redis-py types an answer as every form it could be decoded to; ours are bytes
        self._settings = settings
        self.lane = lane
        self.consumer = consumer
        self.keys = Keys(settings.key_prefix)
        self._stream = self.keys.stream(lane)

    def ensure_group(self) -> None:
        """Create stream and group if they are not there. The group starts at the stream's beginning."""
        try:
            self._client.xgroup_create(self._stream, GROUP, id="0", mkstream=True)
        except ResponseError as error:
            if "BUSYGROUP" not in str(error):
                raise

    def read(self, count: int, block: float) -> list[Entry]:
        """New entries, at most `count`, waiting up to `block` seconds (0: not at all) for the first."""
        answer = self._client.xreadgroup(
            GROUP, self.consumer, {self._stream: ">"}, count=count, block=int(block * 1000) if block else None
        )
        return [entry(entry_id, fields) for _, entries in answer or [] for entry_id, fields in entries]

    def fetch(self, entry_ids: Sequence[str]) -> list[Entry]:
        """The entries among `entry_ids` that are still in the stream, in the given order."""
        found = []
        for start in range(0, len(entry_ids), RANGE_PAGE):
            pipeline = self._client.pipeline(transaction=False)
            for entry_id in entry_ids[start : start + RANGE_PAGE]:
                pipeline.xrange(self._stream, entry_id, entry_id)
            found += [entry(*rows[0]) for rows in pipeline.execute() if rows]
        return found

    def renew(self, entry_ids: Sequence[str]) -> None:
        """Extend the lease; an entry that is acknowledged already stays so."""
        if entry_ids:
            self._client.xclaim(self._stream, GROUP, self.consumer, 0, list(entry_ids), justid=True)

    def release(self, entry_ids: Sequence[str]) -> None:
        """Give up the lease, so that the next claim takes these entries without waiting or counting a delivery."""
        pipeline = self._client.pipeline(transaction=False)
        for entry_id in entry_ids:
            pipeline.xpending_range(self._stream, GROUP, entry_id, entry_id, 1)
        by_count: dict[int, list[str]] = {}
        for rows in pipeline.execute():
            for row in rows:
                by_count.setdefault(row["times_delivered"], []).append(row["message_id"])
        idle = int(self._settings.lease * 1000) + 1
        for count, ids in by_count.items():
            self._client.xclaim(
                self._stream, GROUP, self.consumer, 0, ids, idle=idle, retrycount=max(0, count - 1), justid=True
            )

    def settle(self, entry_ids: Sequence[str]) -> None:
        """Acknowledge and delete: both stores have committed these entries."""
        if entry_ids:
            self._client.eval(_SETTLE, 2, self._stream, self.keys.failures, GROUP, *entry_ids)

    def bury(self, dead: Entry, reason: str, deliveries: int) -> None:
        """Move an entry to the dead letters, with the reason (which never holds content).

        One that is no longer in the stream was buried by another delivery or forgotten, and stays gone.
        """
        keys = (self._stream, self.keys.dead, self.keys.failures, self.keys.counters)
        flat = (part for item in self.letter(dead, reason, deliveries).items() for part in item)
        self._client.eval(_BURY, len(keys), *keys, GROUP, dead.id, *flat)

    def letter(self, dead: Entry, reason: str, deliveries: int) -> dict[bytes, Any]:
        """The fields of an entry's dead letter."""
        now = int(time.time() * 1000)
        spooled = {} if dead.accepted is None else {ACCEPTED_FIELD: milliseconds_of(dead.accepted)}
        return {
            **spooled,
            EVENT_FIELD: dead.payload,
            ORDER_FIELD: dead.order,
            b"lane": self.lane,
            b"entry": dead.id,
            b"reason": reason,
            b"deliveries": deliveries,
            b"accepted_ms": dead.accepted_ms,
            b"died_ms": now,
            FIRST_DIED_FIELD: dead.first_died_ms or now,
            DEATHS_FIELD: dead.deaths + 1,
        }

    def record_failure(self, entry_id: str, reason: str) -> None:
        """Keep why an entry failed when it was tried alone."""
        self._client.hset(self.keys.failures, entry_id, reason)

    def failure_of(self, entry_id: str) -> str | None:
        """Why this entry last failed alone, if it did."""
        reason = self._client.hget(self.keys.failures, entry_id)
        return reason.decode() if reason else None

    def report_waiting(self, reason: str, seconds: float) -> None:
        """Let `status` say what holds this worker up; forgotten when it is not repeated."""
        with _FIGURES_CAN_WAIT:
            self._client.set(self.keys.waiting, reason, px=int((seconds + self._settings.lease) * 1000))

    def report_working(self) -> None:
        """What a worker waited for is there again; another that still waits says so at its next attempt."""
        self._client.delete(self.keys.waiting)

    def count(self, outcomes: Mapping[str, int]) -> None:
        """Add to the counters that `status` shows."""
        pipeline = self._client.pipeline(transaction=False)
        for name, amount in outcomes.items():
            if amount:
                pipeline.hincrby(self.keys.counters, name, amount)
        with _FIGURES_CAN_WAIT:
            pipeline.execute()

    def claim_abandoned(self, count: int) -> Claimed:
        """Take over up to `count` entries whose lease has run out, going on where the last claim stopped."""
        cursor_key = self.keys.claim_cursor(self.lane)
        cursor = (self._client.get(cursor_key) or b"0-0").decode()
        answer = self._client.xautoclaim(
            self._stream, GROUP, self.consumer, int(self._settings.lease * 1000), start_id=cursor, count=count
        )
        following, rows = answer[0].decode(), answer[1]
        with _FIGURES_CAN_WAIT:  # the next claim then looks once more where this one has
            self._client.set(cursor_key, following)
        entries = [entry(entry_id, fields) for entry_id, fields in rows if fields]
        # Redis 7 acknowledges entries without data itself and lists them; Redis 6.2 returns them as nil.
        lost = len(answer[2]) if len(answer) > 2 else 0
        if len(entries) < len(rows):
            lost += self._acknowledge_nils(cursor, following)
        if lost:
            self.count({"lost_entry": lost})
        return Claimed(entries=list(zip(entries, self._deliveries(entries), strict=True)), lost=lost)

    def remove_idle_consumers(self) -> None:
        """Forget consumers that are long gone. One with pending entries stays: deleting it would drop them."""
        for row in self._client.xinfo_consumers(self._stream, GROUP):
            if row["pending"] == 0 and row["idle"] > IDLE_CONSUMER_MS:
                self._client.xgroup_delconsumer(self._stream, GROUP, row["name"])

    def _settle(self, pipeline: redis.client.Pipeline, entry_ids: Sequence[str]) -> None:
        pipeline.xack(self._stream, GROUP, *entry_ids)
        pipeline.xdel(self._stream, *entry_ids)
        pipeline.hdel(self.keys.failures, *entry_ids)

    def _deliveries(self, entries: Sequence[Entry]) -> list[int]:
        pipeline = self._client.pipeline(transaction=False)
        for one in entries:
            pipeline.xpending_range(self._stream, GROUP, one.id, one.id, 1)
        return [rows[0]["times_delivered"] if rows else 1 for rows in pipeline.execute()]

    def _acknowledge_nils(self, first: str, after: str) -> int:
        """Acknowledge our pending entries from `first` up to `after` (0-0: to the end) that have no data."""
        last = "+" if after == "0-0" else after
        page = self._client.xpending_range(self._stream, GROUP, first, last, 10_000, consumername=self.consumer)
        ids = [row["message_id"].decode() for row in page]
        present = {one.id for one in self.fetch(ids)}
        gone = [entry_id for entry_id in ids if entry_id not in present]
        if gone:
            self._client.xack(self._stream, GROUP, *gone)
        return len(gone)


def entry(entry_id: bytes, fields: dict[bytes, bytes]) -> Entry:
    """An entry from Redis' own form."""
    name = entry_id.decode()
    order = fields.get(ORDER_FIELD)
    accepted = fields.get(ACCEPTED_FIELD)
    first_died = fields.get(FIRST_DIED_FIELD)
    return Entry(
        id=name,
        payload=fields.get(EVENT_FIELD, b""),
        order=order.decode() if order else entry_order(name),
        deaths=int(fields.get(DEATHS_FIELD, 0)),
        first_died_ms=int(first_died) if first_died else None,
        accepted=order_at(int(accepted)) if accepted else None,
    )
