"""`scope-recall restore`: put a backup into an empty data dir."""

from __future__ import annotations

from pathlib import Path

import click

from producers.terminal import DONE, Terminal, command, examples
from workers.backup.restore import restore_backup
from workers.commands.backup import Shown, as_json, table


@command(
    short_help="Restore a backup into an empty data dir.",
    epilog=examples("scope-recall restore ~/backups/monday --data-dir ~/restored"),
    on_half_restored=True,
)
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
def restore(terminal: Terminal, folder: Path) -> int:
    """Restore the backup in DIR: every checksum first, then vectors, streams and catalog, then every count.

    Data dir, catalog, vectors and Redis streams of the settings must be empty, and nothing may run on them. One that
    is interrupted starts anew with the same command; until then other commands refuse the data dir.
    """
    with terminal.progress() as bar:
        restored = restore_backup(terminal.settings, folder, Shown(bar).update)
    if terminal.json:
        terminal.emit(as_json(restored.manifest, restored.seconds) | {"data_dir": str(terminal.settings.data_dir)})
    else:
        terminal.out.print(table(restored.manifest, "what there is now"))
        terminal.say(
            f"restored into {terminal.settings.data_dir} in {restored.seconds:.1f} s; `scope-recall up` runs it"
        )
    return DONE
