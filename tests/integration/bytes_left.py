"""Where a text is still to be found: in the files of a data dir and in Redis' keys. Does I/O."""

from __future__ import annotations

from typing import Any

import redis

from producers.connection import connect
from producers.settings import Settings


def holding(settings: Settings, text: str) -> list[str]:
    """Files of the data dir and Redis keys that hold the text; None of the latter when Redis is away."""
    files = [path for path in settings.data_dir.rglob("*") if path.is_file() and text.encode() in path.read_bytes()]
    found = [str(path.relative_to(settings.data_dir)) for path in files]
    with connect(settings) as client:
        try:
            keys: Any = client.keys("*")
        except redis.ConnectionError:
            return found
        found += [key.decode() for key in keys if text in str(_value(client, key))]
    return found


def _value(client: Any, key: bytes) -> Any:
    reads = {b"stream": client.xrange, b"hash": client.hgetall, b"set": client.smembers, b"string": client.get}
    reads[b"list"] = lambda key: client.lrange(key, 0, -1)
    reads[b"zset"] = lambda key: client.zrange(key, 0, -1)
    return reads[client.type(key)](key)
