"""Erasing forgotten events from Redis: entries, dead letters, and the files and logs Redis keeps of them. Does I/O."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import redis

from producers.connection import said
from producers.errors import StreamUnavailable
from producers.keys import GROUP, Keys
from producers.settings import LANES, Settings
from workers.ledger import RANGE_PAGE, Entry, entry
from workers.order import MAX_SEQUENCE, entry_order, order_at
from workers.supervision.redis_server import answers, embedded_redis, half_written, redis_dir
from workers.supervision.tree_state import read_state

POLL = 0.05
PATIENCE = 10.0
"""Seconds that a Redis that is being started again is waited for."""
REWRITE_SECONDS = 900.0
"""Longest rewrite of an append-only file; 1 GiB takes about ten seconds."""


def reachable(settings: Settings) -> AbstractContextManager[object]:
    """The embedded Redis is started for the block when nobody runs it and it has something to erase."""
    nobody = read_state(settings.data_dir) is None  # else `up` starts it, when it is down, by itself
    if settings.redis_url is None and nobody and redis_dir(settings).is_dir() and not answers(settings):
        return embedded_redis(settings)
    return nullcontext()


def patience(settings: Settings) -> float:
    """Seconds to wait for Redis; none where nobody is about to start it."""
    return PATIENCE if settings.redis_url is not None or read_state(settings.data_dir) is not None else 0.0


def never_ran(settings: Settings) -> bool:
    """Whether this data dir has never had the Redis that it is to use."""
    return settings.redis_url is None and not redis_dir(settings).is_dir()


def cutoff(client: redis.Redis, settings: Settings) -> str:
    """The order behind everything that Redis has accepted; by this machine's clock when Redis is away."""
    server: Any = client
    keys = Keys(settings.key_prefix)
    try:
        orders = [order_at(_now_ms(server), MAX_SEQUENCE)]
        for stream in (*map(keys.stream, LANES), keys.dead):
            if server.exists(stream):  # its last id is ahead of a clock that was set back
                orders.append(entry_order(server.xinfo_stream(stream)["last-generated-id"].decode()))
        return max(orders)
    except redis.RedisError:
        return order_at(time.time_ns() // 1_000_000, MAX_SEQUENCE)


def wait_past_the_cutoff(client: redis.Redis) -> None:
    """What is pushed once the caller knows that the turns are forgotten must be accepted after it."""
    server: Any = client
    try:
        first = _now_ms(server)
        while _now_ms(server) <= first:
            time.sleep(0.001)
    except redis.RedisError:
        return


def _now_ms(server: Any) -> int:
    """Milliseconds since 1970 by Redis' clock."""
    seconds, microseconds = server.time()
    return int(seconds * 1000 + microseconds // 1000)


def erase_entries(client: redis.Redis, settings: Settings, covers: Callable[[Entry], bool]) -> tuple[int, int]:
    """Delete what `covers` from both streams and from the dead letters; returns how many of each."""
    keys = Keys(settings.key_prefix)
    in_streams = 0
    for lane in LANES:
        stream = keys.stream(lane)
        for page in _pages(client, stream):
            ids = [one.id for one in page if covers(one)]
            if ids:
                pipeline = client.pipeline(transaction=True)
                pipeline.xdel(stream, *ids)
                pipeline.xack(stream, GROUP, *ids)
                pipeline.hdel(keys.failures, *ids)
                in_streams += pipeline.execute()[0]
    dead = 0
    for page in _pages(client, keys.dead):
        ids = [one.id for one in page if covers(one)]
        dead += int(client.xdel(keys.dead, *ids)) if ids else 0
    return in_streams, dead


def entries(client: redis.Redis, settings: Settings) -> Iterator[Entry]:
    """Every entry of the streams and the dead letters."""
    keys = Keys(settings.key_prefix)
    for stream in (*map(keys.stream, LANES), keys.dead):
        for page in _pages(client, stream):
            yield from page


def scrub(client: redis.Redis, settings: Settings) -> list[str]:
    """Have Redis write its files anew, without what was deleted; returns what keeps it from being gone, for people.

    A deleted stream entry stays in Redis' memory, and in its snapshots, as long as a neighbour of it is there. The
    append-only file is free of it when it is written as commands.
    """
    server: Any = client
    problems = []
    with_aof = bool(server.info("persistence").get("aof_enabled"))
    snapshots = _saves_snapshots(server)
    keeps_neighbours = snapshots or (with_aof and not _writes_commands(server))
    steps: list[tuple[bool, str, Callable[[], object]]] = [
        (True, "SLOWLOG RESET", server.slowlog_reset),
        (with_aof, "BGREWRITEAOF", lambda: _rewrite_file(server)),
        (snapshots, "BGSAVE", lambda: _save_snapshot(server)),
    ]
    for needed, name, step in steps:
        try:
            if needed:
                step()
        except redis.ResponseError as error:
            problems.append(f"Redis refuses {name} ({said(error)}): what it has on its disk or in its logs may stay")
    _delete_half_written(server, settings)
    keys = Keys(settings.key_prefix)
    if keeps_neighbours and any(server.xlen(stream) for stream in (*map(keys.stream, LANES), keys.dead)):
        problems.append(
            "Redis keeps snapshots (its settings save and aof-use-rdb-preamble), and deleted entries stay in them "
            "until their neighbours are stored: let the streams and dead letters become empty, or turn these off"
        )
    return problems


def _delete_half_written(server: Any, settings: Settings) -> None:
    """What a Redis that was killed in a rewrite has left; where one goes on it began after the erasure, and ends."""
    if settings.redis_url is None:
        left = half_written(settings)
        info = server.info("persistence")
        if not info["aof_rewrite_in_progress"] and not info["rdb_bgsave_in_progress"]:
            for path in left:
                path.unlink(missing_ok=True)


def _writes_commands(server: Any) -> bool:
    """Make the append-only file one of commands alone; False where that is refused."""
    try:
        server.config_set("aof-use-rdb-preamble", "no")
    except redis.ResponseError:  # a managed Redis may refuse CONFIG
        return False
    return True


def _pages(client: redis.Redis, stream: str) -> Iterator[list[Entry]]:
    """The stream, a page at a time: at the content limit of 1 MiB that is 128 MiB."""
    server: Any = client
    start = "-"
    while page := server.xrange(stream, min=start, count=RANGE_PAGE):
        yield [entry(entry_id, fields) for entry_id, fields in page]
        start = f"({page[-1][0].decode()}"


def _saves_snapshots(server: Any) -> bool:
    try:
        return any(value for value in server.config_get("save").values())
    except redis.ResponseError:  # a managed Redis may refuse CONFIG
        return bool(server.lastsave())


def _rewrite_file(server: Any) -> None:
    """A rewrite that began after this call; one that was under way may have read what is deleted now."""
    _wait(server, lambda info: not info["aof_rewrite_in_progress"] and not info["aof_rewrite_scheduled"])
    server.bgrewriteaof()
    info = _wait(server, lambda info: not info["aof_rewrite_in_progress"] and not info["aof_rewrite_scheduled"])
    if info["aof_last_bgrewrite_status"] != "ok":
        raise StreamUnavailable("Redis could not write its append-only file anew: is its disk full? Try again")


def _save_snapshot(server: Any) -> None:
    _wait(server, lambda info: not info["rdb_bgsave_in_progress"])
    server.bgsave()
    info = _wait(server, lambda info: not info["rdb_bgsave_in_progress"])
    if info["rdb_last_bgsave_status"] != "ok":
        raise StreamUnavailable("Redis could not write its snapshot anew: is its disk full? Try again")


def _wait(server: Any, done: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    deadline = time.monotonic() + REWRITE_SECONDS
    while True:
        info: dict[str, Any] = server.info("persistence")
        if done(info):
            return info
        if time.monotonic() > deadline:
            raise StreamUnavailable(f"Redis is still writing its files after {REWRITE_SECONDS:.0f} s; try again later")
        time.sleep(POLL)
