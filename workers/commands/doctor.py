"""`scope-recall doctor`: check the installation and say what to change."""

from __future__ import annotations

from dataclasses import asdict

from rich.table import Table
from rich.text import Text

from producers.errors import ScopeRecallError
from producers.settings import Settings
from producers.terminal import DONE, IN_PART, Terminal, command, examples
from workers.health import Check, checks

MARKS = {True: Text("ok", "green"), False: Text("fails", "red"), None: Text("warning", "yellow")}


@command(short_help="Check the installation and say what to change.", epilog=examples("scope-recall doctor"))
def doctor(terminal: Terminal) -> int:
    """Check packages, Redis, disk and processes. Exit 1 when something must be changed; warnings leave it at 0."""
    found = [*checks(terminal.settings), *_languages(terminal.settings)]
    if terminal.json:
        terminal.emit({"ok": all(check.ok is not False for check in found), "checks": [asdict(c) for c in found]})
    else:
        table = Table("check", "", "found", "what to change")
        for check in found:
            table.add_row(check.name, MARKS[check.ok], check.found, check.advice)
        terminal.out.print(table)
    return IN_PART if any(check.ok is False for check in found) else DONE


def _languages(settings: Settings) -> list[Check]:
    """Whether the embedder speaks what is stored; nothing to say before anything is."""
    from workers.status import language_advice
    from workers.stores.catalog import Catalog

    try:
        catalog = Catalog.open(settings.catalog_location)
        active = catalog.spaces.active()
        advice = language_advice(catalog, active) if active else None
        catalog.close()
    except ScopeRecallError:
        return []
    if active is None:
        return []
    return [Check("languages", None if advice else True, active.space.embedder, advice or "")]
