"""`scope-recall drain`: wait until every accepted turn can be recalled."""

from __future__ import annotations

import time
from typing import Any

import click

from producers.errors import StreamAway
from producers.settings import LANES, Settings
from producers.spool import damaged, spooled
from producers.stream import SEND_SECONDS, EventStream
from producers.terminal import DONE, IN_PART, Terminal, command, examples
from workers.progress import Progress, in_streams, read_progress
from workers.supervision.tree_state import read_state

POLL = 0.1
AWAY_POLL = 0.5


@command(
    short_help="Wait until every accepted turn can be recalled.",
    epilog=examples("scope-recall drain", "scope-recall drain --timeout 600 --json"),
)
@click.option("--timeout", type=click.FloatRange(min=0), default=3600, show_default=True, help="Seconds to wait.")
def drain(terminal: Terminal, timeout: float) -> int:
    """Send what is spooled here, then wait until the streams are empty and every turn is indexed.

    Exit 1 when turns are left or became dead letters.
    """
    started = time.monotonic()
    progress = wait_until_drained(terminal, timeout)
    result: dict[str, Any] = {
        "drained": progress.waiting == 0,
        "waiting": progress.waiting,
        "dead": progress.dead,
        "turns": progress.turns,
        "seconds": round(time.monotonic() - started, 2),
    }
    if terminal.json:
        terminal.emit(result)
    elif progress.waiting:
        terminal.note(
            f"error: {progress.waiting:,} turns still wait after {timeout:g} s; `scope-recall status` says what holds "
            "them up. They are safe, and drain can be called again",
        )
    else:
        terminal.say(f"drained in {result['seconds']} s: {progress.turns:,} turns are stored, and none waits")
    if progress.dead and not terminal.json:
        terminal.note(f"{progress.dead} dead letters could not be stored: see `scope-recall dead list`")
    for warning in damaged(terminal.settings):
        terminal.note(f"warning: {warning}")
    return IN_PART if progress.waiting or progress.dead else DONE


def wait_until_drained(terminal: Terminal, timeout: float) -> Progress:
    """Wait with a progress bar, for `timeout` seconds at most; returns how far it came."""
    deadline = time.monotonic() + timeout
    with terminal.progress() as bar:
        task = bar.add_task("draining", total=None)
        most = 0
        while True:
            try:
                send_spooled(terminal.settings)
                left, _ = in_streams(terminal.settings)
            except StreamAway:
                # `up` is there and starts a Redis that died again: that is waited for like all else.
                if read_state(terminal.settings.data_dir) is None or time.monotonic() >= deadline:
                    raise
                time.sleep(AWAY_POLL)
                continue
            most = max(most, left)
            bar.update(task, total=most, completed=most - left)
            late = time.monotonic() >= deadline
            if left == 0 or late:
                progress = read_progress(terminal.settings)
                if progress.waiting == 0 or late:
                    return progress
            time.sleep(POLL)


def send_spooled(settings: Settings) -> None:
    """Send what this machine keeps for this Redis, for a moment; the rest goes with the next call.

    Raises `StreamUnavailable`.
    """
    if spooled(settings).files:
        for lane in LANES:
            with EventStream(settings, lane) as stream:
                stream.send_spooled(SEND_SECONDS)
