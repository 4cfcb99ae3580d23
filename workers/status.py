"""What the system is doing, as one dict: the source of `status`, `drain` and `demo`. Does I/O; reads only.

Every part that cannot be read is left out and named in `degraded`: a status that lies is worse than none.
"""

from __future__ import annotations

import socket
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from typing import Any

import redis

from producers.api_file import api_url
from producers.connection import connect, mapped_errors
from producers.errors import NotReady, ScopeRecallError, StreamAway
from producers.high_water import over_high_water
from producers.keys import Keys
from producers.scripts import foreign_scripts
from producers.settings import LANES, Settings
from producers.spool import FOLDER, damaged, spooled, spooled_for_others
from producers.stream import read_backlog
from workers.completeness import Completeness
from workers.disk import NEARLY_FULL_BYTES, disks, shown_size
from workers.embedding.registry import recommended_multilingual
from workers.maintenance.overview import overview
from workers.queues import MAINTENANCE, rq_queue
from workers.spaces_overview import spaces_overview
from workers.stores.catalog import Catalog, CatalogCounts
from workers.stores.space import Space
from workers.stores.spaces import StoredSpace
from workers.stores.vectors import VectorStatistics, VectorStore
from workers.supervision.process import last_error
from workers.supervision.redis_server import redis_log
from workers.supervision.tree_state import read_state

SILENT_SECONDS = 30.0
"""The supervisor writes its state every five seconds."""
SAMPLE_TURNS = 200
"""Newest turns looked at for their writing system."""
FOREIGN_SAMPLE_SHARE = 0.2
"""Share of them in scripts the embedder does not speak from which a multilingual model is recommended."""


def gather_status(settings: Settings, client: redis.Redis | None = None) -> dict[str, Any]:
    """Streams, queues, workers, catalog, vectors, spaces, spool, processes, `degraded` and `advice`.

    `client` is one of the caller's own, which may be less patient.
    """
    if not settings.data_dir.is_dir() and settings.catalog_url is None:
        raise NotReady(f"no data dir at {settings.data_dir}: start `scope-recall up`, or name another with --data-dir")
    status: dict[str, Any] = {"data_dir": str(settings.data_dir), "degraded": [], "advice": []}
    status["processes"] = _processes(settings, status["degraded"])
    status["api"] = {"url": api_url(settings.data_dir)}
    status["degraded"] += _full_disks(settings)
    for gather in (partial(_gather_redis, client), _gather_stores):
        try:
            gather(settings, status)
        except StreamAway as error:
            status["degraded"].append(_without_redis(settings, status, error))
        except ScopeRecallError as error:
            status["degraded"].append(str(error))
    _gather_spool(settings, status)
    return status


def _gather_redis(client: redis.Redis | None, settings: Settings, status: dict[str, Any]) -> None:
    client = client or connect(settings)
    keys = Keys(settings.key_prefix)
    with mapped_errors(settings):
        lanes = {lane: read_backlog(client, keys.stream(lane)) for lane in LANES}
        streams: dict[str, Any] = {
            lane: {"lag": backlog.lag, "pending": backlog.pending, "length": backlog.length}
            for lane, backlog in lanes.items()
        }
        streams["dead"] = int(client.xlen(keys.dead))
        status["streams"] = streams
        status["queues"] = {lane: rq_queue(lane, client, settings).count for lane in (*LANES, MAINTENANCE)}
        status["workers"] = _workers(client)
        counters: Any = client.hgetall(keys.counters)
        status["counters"] = {name.decode(): int(value) for name, value in counters.items()}
        waiting: Any = client.get(keys.waiting)
        memory: Any = client.info("memory")
    if waiting:
        status["degraded"].append(f"a worker waits and tries again: {waiting.decode()}")
    reasons = {over_high_water(lane, backlog.length, memory, settings) for lane, backlog in lanes.items()} - {None}
    status["degraded"] += [
        f"appends wait, since {reason}: what is accepted is safe; see that workers are running, add some, or give "
        "Redis more memory"
        for reason in sorted(reasons, key=str)
    ]
    if streams["dead"]:
        status["degraded"].append(f"{streams['dead']} dead letters: see `scope-recall dead list`")
    if status["counters"].get("lost_entry"):
        status["advice"].append(
            f"{status['counters']['lost_entry']} accepted entries had lost their data when they were read: "
            "something else trims or deletes from the streams"
        )
    if not status["workers"] and any(streams[lane]["length"] for lane in LANES):
        status["degraded"].append("turns are waiting and no worker is registered: start `scope-recall up` or a worker")


def _without_redis(settings: Settings, status: dict[str, Any], error: StreamAway) -> str:
    """Who has started `up` is not told to start it."""
    if status["processes"] is None or settings.redis_url is not None:
        return f"{error}. What is stored can be recalled meanwhile"
    return (
        "the embedded Redis does not answer: what it has accepted is safe on its disk, appends are spooled, what is "
        "stored can be recalled, and "
        f"`scope-recall up` starts it again by itself; if it does not come back, see {redis_log(settings)} and whether "
        "the disk is full"
    )


def _full_disks(settings: Settings) -> list[str]:
    return [
        f"the disk of {folder} has {shown_size(free)} left: what is accepted is safe, and what can no longer be "
        "written waits and goes on by itself; free space there"
        for folder, free in disks(settings).items()
        if free < NEARLY_FULL_BYTES
    ]


def _gather_spool(settings: Settings, status: dict[str, Any]) -> None:
    kept = spooled(settings)
    status["spool"] = asdict(kept)
    folder = settings.data_dir / FOLDER
    if kept.events:
        status["degraded"].append(
            f"{kept.events:,} accepted turns wait in {folder} for Redis: they are safe and are sent when it takes "
            "them, by `scope-recall up` on this data dir, the next append, or `scope-recall drain`"
        )
    for destination, events in spooled_for_others(settings).items():
        status["degraded"].append(
            f"{events:,} accepted turns wait in {folder} for another Redis ({destination}): they are safe; send them "
            "with `scope-recall push /dev/null` under the settings they were pushed with, or delete their files"
        )
    status["degraded"] += damaged(settings)


def _workers(client: redis.Redis) -> list[dict[str, Any]]:
    """The workers RQ knows, less those of this host that are gone, which RQ forgets when their record expires."""
    from psutil import pid_exists
    from rq import Worker

    here = socket.gethostname()
    return [
        {
            "name": worker.name,
            "state": str(worker.get_state()),
            "host": worker.hostname,
            "pid": worker.pid,
            "queues": worker.queue_names(),
            "jobs_done": worker.successful_job_count,
            "jobs_failed": worker.failed_job_count,
        }
        for worker in Worker.all(connection=client)
        if worker.hostname != here or (worker.pid is not None and pid_exists(worker.pid))
    ]


def _gather_stores(settings: Settings, status: dict[str, Any]) -> None:
    try:
        catalog = Catalog.open(settings.catalog_location)
    except NotReady:  # nothing has been stored yet
        status |= {
            "catalog": asdict(CatalogCounts(0, 0, 0)),
            "vectors": asdict(VectorStatistics(0, 0, 0, 0)),
            "spaces": [],
        }
        return
    try:
        _gather_catalog(catalog, settings, status)
    finally:
        catalog.close()


def _gather_catalog(catalog: Catalog, settings: Settings, status: dict[str, Any]) -> None:
    status["catalog"] = asdict(catalog.counts())
    active = catalog.spaces.active()
    status["spaces"] = []
    if active is None:
        status["vectors"] = asdict(VectorStatistics(0, 0, 0, 0))
        return
    spaces = spaces_overview(catalog, settings)
    status["spaces"] = spaces.spaces
    status["degraded"] += spaces.undecided
    status["advice"] += spaces.advice
    unfinished = catalog.tombstones.unfinished()
    if unfinished:
        status["degraded"].append(
            f"forgets not finished (retention's count as well): {len(unfinished)}: recall returns none of it, but "
            "bytes may be left on a disk; the maintenance worker goes on with it, or `scope-recall forget --resume`"
        )
    advice = language_advice(catalog, active)
    if advice:
        status["advice"].append(advice)
    try:
        _gather_vectors(catalog, active.space, settings, status)
    except ScopeRecallError as error:  # the catalog says the rest all the same
        status["degraded"].append(str(error))
    tree = status["processes"]
    since = datetime.fromisoformat(tree["started_at"]) if tree else None
    status["maintenance"], late = overview(catalog, settings, since=since, now=datetime.now(UTC))
    status["degraded"] += late


def _gather_vectors(catalog: Catalog, space: Space, settings: Settings, status: dict[str, Any]) -> None:
    vectors = VectorStore(settings.vectors_location)
    status["vectors"] = asdict(vectors.statistics(space))
    completeness = Completeness(catalog, vectors, space)
    missing = completeness.close_look()
    status["degraded"] += [missing] if missing else []
    # While a forget goes on, the rows of what it hides are still to be erased.
    surplus = None if catalog.tombstones.unfinished() else completeness.surplus()
    status["advice"] += [surplus] if surplus else []


def language_advice(catalog: Catalog, active: StoredSpace) -> str | None:
    """A multilingual model by name, when much of what is stored is in a script that the embedder does not speak."""
    sample = catalog.recent_contents(SAMPLE_TURNS)
    foreign = [scripts for text in sample if (scripts := foreign_scripts(text, active.scripts))]
    if not sample or len(foreign) / len(sample) < FOREIGN_SAMPLE_SHARE:
        return None
    share = round(100 * len(foreign) / len(sample))
    return (
        f"{share}% of the newest turns are in a script that {active.space.embedder} does not speak ({foreign[0][0]}): "
        f"SCOPE_RECALL_EMBEDDER={recommended_multilingual()} on a new data dir recalls them better, and so does "
        f"`scope-recall reembed --model {recommended_multilingual()}` on this one"
    )


def _processes(settings: Settings, degraded: list[str]) -> dict[str, Any] | None:
    tree = read_state(settings.data_dir)
    if tree is None:
        return None
    silent = (datetime.now(UTC) - datetime.fromisoformat(tree.updated_at)).total_seconds()
    if silent > SILENT_SECONDS:
        degraded.append(
            f"the state of the processes was last written {silent:.0f} s ago and may have changed; nothing else "
            f"depends on it: see whether the disk of {settings.data_dir} is full or read-only"
        )
    for child in tree.children:
        log = settings.data_dir / "logs" / f"{child.name}.log"
        if child.state == "backoff":
            degraded.append(f"{child.name} is down ({child.last_exit}) and will be started again; its log: {log}")
        elif child.state == "running" and not child.ready and (said := last_error(log)):
            degraded.append(f"{child.name} runs and cannot work yet{said}")
    return asdict(tree)
