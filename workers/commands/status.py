"""`scope-recall status`: what the system is doing now."""

from __future__ import annotations

import time
from typing import Any

import click
from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from producers.settings import LANES
from producers.terminal import DONE, IN_PART, Terminal, command, examples
from workers.spaces_overview import in_words
from workers.status import gather_status

REFRESH = 1.0


@command(
    short_help="Show streams, queues, workers and stores.",
    epilog=examples("scope-recall status", "scope-recall status --watch", "scope-recall status --json"),
)
@click.option("--watch", is_flag=True, help="Refresh every second until Ctrl-C.")
def status(terminal: Terminal, watch: bool) -> int:
    """Show what waits, who works and what is stored. Exit 1 when something is degraded."""
    if watch and not terminal.json:
        return _watch(terminal)
    found = gather_status(terminal.settings)
    if terminal.json:
        terminal.emit(found)
    else:
        terminal.out.print(render(found))
    return IN_PART if found["degraded"] else DONE


def _watch(terminal: Terminal) -> int:
    with Live(console=terminal.out, auto_refresh=False) as live:
        while True:
            live.update(render(gather_status(terminal.settings)), refresh=True)
            time.sleep(REFRESH)


def render(found: dict[str, Any]) -> RenderableType:
    """The status as tables. Pure."""
    parts: list[RenderableType] = [_streams(found), _stores(found), _maintenance(found), _processes(found)]
    parts += [Text(f"degraded: {line}", style="red") for line in found["degraded"]]
    parts += [Text(f"advice: {line}", style="yellow") for line in found["advice"]]
    if not found["degraded"]:
        parts.append(Text("nothing is degraded", style="green"))
    return Group(*parts)


def _streams(found: dict[str, Any]) -> RenderableType:
    if "streams" not in found:
        return Text("streams: not known")
    table = Table("stream", "not yet read", "being stored", "jobs queued", title="what waits")
    for lane in LANES:
        row = found["streams"][lane]
        table.add_row(lane, f"{row['lag']:,}", f"{row['pending']:,}", f"{found['queues'][lane]:,}")
    table.add_row("dead letters", f"{found['streams']['dead']:,}", "", "")
    table.add_row("maintenance", "", "", f"{found['queues']['maintenance']:,}")
    table.add_row("spooled here", f"{found['spool']['events']:,}", "", "")
    return table


def _stores(found: dict[str, Any]) -> RenderableType:
    if "catalog" not in found:
        return Text("stores: not known")
    table = Table("store", "figure", "value", title="what is stored")
    for name in ("turns", "chunks", "pending"):
        table.add_row("catalog", name, f"{found['catalog'][name]:,}")
    for name in ("rows", "unindexed_rows", "fragments", "size_bytes"):
        value = f"{found['vectors'][name]:,}" if "vectors" in found else "not known"
        table.add_row("vectors", name.replace("_", " "), value)
    for space in found["spaces"]:
        table.add_row("space", space["embedder"], in_words(space))
    return table


def _maintenance(found: dict[str, Any]) -> RenderableType:
    jobs = found.get("maintenance")
    if not jobs:
        return Text("maintenance: nothing to look after yet")
    table = Table("job", "schedule", "last success", "last outcome", "next", title="maintenance")
    for name, job in jobs.items():
        table.add_row(name, job["cron"], *(job[key] or "" for key in ("last_success", "last_outcome", "next")))
    return table


def _processes(found: dict[str, Any]) -> RenderableType:
    tree = found["processes"]
    serving = f"; the query service answers at {found['api']['url']}" if found["api"]["url"] else ""
    if tree is None:
        return Text(f"no `scope-recall up` runs on this data dir{serving}")
    table = Table(
        "process", "state", "pid", "restarts", "last exit", "since", title=f"up, pid {tree['process']['pid']}{serving}"
    )
    for child in tree["children"]:
        pid = str(child["process"]["pid"]) if child["process"] else ""
        state = "ready" if child["ready"] else child["state"]
        how = (child["last_exit"] or "").partition(";")[0]  # what it said besides is below, while it is down
        table.add_row(child["name"], state, pid, str(child["restarts"]), how, child["since"])
    return table
