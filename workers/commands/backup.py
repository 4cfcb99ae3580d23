"""`scope-recall backup`: copy the whole system to a folder, or check such a copy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from rich.progress import Progress, TaskID
from rich.table import Table
from rich.text import Text

from producers.errors import BadBackup
from producers.terminal import DONE, IN_PART, Terminal, command, examples
from workers.backup.check import check_backup
from workers.backup.make import make_backup
from workers.backup.manifest import Manifest, summary


@command(
    short_help="Copy the whole system to a folder while it runs.",
    epilog=examples("scope-recall backup ~/backups/monday", "scope-recall backup --verify ~/backups/monday"),
    on_half_restored=True,
)
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--verify", is_flag=True, help="Check the backup in DIR instead: every checksum and count.")
def backup(terminal: Terminal, folder: Path, verify: bool) -> int:
    """Copy catalog, vectors and the turns on their way to DIR, which must not exist or be empty.

    Agents go on pushing and asking; what was accepted before it began is in it. Settings and their keys are not. Exit 1
    when Redis is away, so that turns on their way are missing, or when --verify finds damage.
    """
    if verify:
        return _verify(terminal, folder)
    with terminal.progress() as bar:
        made = make_backup(terminal.settings, folder, Shown(bar).update)
    if terminal.json:
        terminal.emit(as_json(made.manifest, made.seconds) | {"folder": str(made.folder), "problem": made.problem})
    else:
        terminal.out.print(table(made.manifest, "what was copied"))
        held = f"ingest waited {made.manifest.held_ms / 1000:.2f} s of it"
        terminal.say(f"backup {made.folder}: {made.seconds:.1f} s, {held}")
        if made.problem:
            terminal.note(f"error: {made.problem}")
    return IN_PART if made.problem else DONE


def _verify(terminal: Terminal, folder: Path) -> int:
    try:
        with terminal.progress() as bar:
            manifest = check_backup(folder, Shown(bar).update)
    except BadBackup as error:
        if terminal.json:
            terminal.emit({"folder": str(folder), "sound": False, "error": str(error)})
        else:
            terminal.note(f"error: {error}")
        return IN_PART
    if terminal.json:
        terminal.emit(as_json(manifest) | {"folder": str(folder), "sound": True})
    else:
        terminal.out.print(table(manifest, f"taken {manifest.created_at}"))
        terminal.say(f"{folder}: {len(manifest.files)} files, every checksum and count is right")
    return DONE


class Shown:
    """The progress bar: one step at a time."""

    def __init__(self, bar: Progress) -> None:
        self._bar = bar
        self._task: TaskID = bar.add_task("", total=None)

    def update(self, step: str, done: int, total: int) -> None:
        self._bar.update(self._task, description=step, completed=done, total=total)


def table(manifest: Manifest, title: str) -> Table:
    """Counts and sizes for people."""
    made = Table("what", "how much", title=title)
    made.columns[1].justify = "right"
    for name, count in summary(manifest):
        made.add_row(Text(name), count)
    return made


def as_json(manifest: Manifest, seconds: float | None = None) -> dict[str, Any]:
    """Counts and sizes for programs."""
    body = manifest.model_dump(mode="json", exclude={"files"})
    body["bytes"] = manifest.bytes
    body["files"] = len(manifest.files)
    return body if seconds is None else body | {"seconds": round(seconds, 2)}
