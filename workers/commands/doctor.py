"""`scope-recall doctor`: check the installation and say what to change."""

from __future__ import annotations

from dataclasses import asdict

from rich.table import Table

from producers.terminal import DONE, IN_PART, Terminal, command, examples
from workers.health import checks

MARKS = {True: "[green]ok[/]", False: "[red]fails[/]", None: "[yellow]warning[/]"}


@command(short_help="Check the installation and say what to change.", epilog=examples("scope-recall doctor"))
def doctor(terminal: Terminal) -> int:
    """Check packages, Redis, disk and processes. Exit 1 when something must be changed; warnings leave it at 0."""
    found = checks(terminal.settings)
    if terminal.json:
        terminal.emit({"ok": all(check.ok is not False for check in found), "checks": [asdict(c) for c in found]})
    else:
        table = Table("check", "", "found", "what to change")
        for check in found:
            table.add_row(check.name, MARKS[check.ok], check.found, check.advice)
        terminal.out.print(table)
    return IN_PART if any(check.ok is False for check in found) else DONE
