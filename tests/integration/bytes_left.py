"""Where a text is still to be found: in the files of a data dir and in Redis' keys. Does I/O."""

from __future__ import annotations

import subprocess
from typing import Any

import redis

from producers.connection import connect
from producers.settings import Settings


def holding(settings: Settings, text: str) -> list[str]:
    """Files of the data dir and Redis keys that hold the text; None of the latter when Redis is away."""
    # As a process: to close a file of SQLite's in this one would give up the locks of the catalogs that are open in it.
    grep = ["grep", "-rlaF", "-D", "skip", text, "."]
    answer = subprocess.run(grep, cwd=settings.data_dir, capture_output=True, text=True, check=False)
    assert answer.returncode in (0, 1), answer.stderr
    found = [line.removeprefix("./") for line in answer.stdout.splitlines()]
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
