"""`scope-recall drain`: wait until every accepted turn can be recalled."""

from __future__ import annotations

import time
from typing import Any

import click

from producers.connection import connect, mapped_errors
from producers.errors import NotReady
from producers.keys import Keys
from producers.settings import LANES, Settings
from producers.stream import read_backlog
from producers.terminal import DONE, IN_PART, Terminal, command, examples
from workers.status import gather_status, waiting

POLL = 0.1
CATALOG_POLL = 1.0
"""Seconds between two looks at the catalog, which cost more than a look at the streams."""


@command(
    short_help="Wait until every accepted turn can be recalled.",
    epilog=examples("scope-recall drain", "scope-recall drain --timeout 600 --json"),
)
@click.option("--timeout", type=click.FloatRange(min=0), default=3600, show_default=True, help="Seconds to wait.")
def drain(terminal: Terminal, timeout: float) -> int:
    """Wait until the streams are empty and every turn is indexed. Exit 1 when turns are left or became dead letters."""
    started = time.monotonic()
    status = wait_until_drained(terminal, timeout)
    left, dead = waiting(status), int(status["streams"]["dead"])
    result: dict[str, Any] = {
        "drained": left == 0,
        "waiting": left,
        "dead": dead,
        "turns": status["catalog"]["turns"],
        "seconds": round(time.monotonic() - started, 2),
    }
    if terminal.json:
        terminal.emit(result)
    elif left:
        terminal.err.print(f"error: {left:,} turns still wait after {timeout:g} s. {' '.join(status['degraded'])}")
    else:
        terminal.out.print(f"drained in {result['seconds']} s: {result['turns']:,} turns can be recalled")
        if dead:
            terminal.err.print(f"{dead} dead letters could not be stored: see `scope-recall dead list`")
    return IN_PART if left or dead else DONE


def wait_until_drained(terminal: Terminal, timeout: float) -> dict[str, Any]:
    """Wait with a progress bar; returns the status at the end. Raises `NotReady` when there is nothing to wait for."""
    settings = terminal.settings
    deadline = time.monotonic() + timeout
    with terminal.progress() as bar:
        task = bar.add_task("draining", total=None)
        most = 0
        while True:
            left = _in_streams(settings)
            most = max(most, left)
            bar.update(task, total=most, completed=most - left)
            if left == 0 or time.monotonic() >= deadline:
                status = gather_status(settings)
                if waiting(status) is None:
                    raise NotReady(" ".join(status["degraded"]))
                if waiting(status) == 0 or time.monotonic() >= deadline:
                    return status
                time.sleep(CATALOG_POLL)
            time.sleep(POLL)


def _in_streams(settings: Settings) -> int:
    keys = Keys(settings.key_prefix)
    client = connect(settings)
    with mapped_errors(settings):
        return sum(read_backlog(client, keys.stream(lane)).length for lane in LANES)
