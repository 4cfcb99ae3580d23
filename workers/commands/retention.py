"""`scope-recall retention`: what the retention rules remove, shown or done."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import click
from rich.table import Table

from producers.connection import connect
from producers.errors import NotReady
from producers.terminal import DONE, Terminal, command, examples, plain
from workers.maintenance.retention import reason_of
from workers.maintenance.run import run_job
from workers.queues import use_prefix
from workers.stores.catalog import Catalog
from workers.stores.retention import Due
from workers.temporary import keep_in_data_dir


@command(
    short_help="Remove what the retention rules no longer keep.",
    epilog=examples("scope-recall retention --dry-run", "scope-recall retention --config settings.toml --json"),
)
@click.option("--dry-run", is_flag=True, help="Show what would go and why, and change nothing.")
def retention(terminal: Terminal, dry_run: bool) -> int:
    """Erase the turns that the rules (setting `retention`) no longer keep, as the nightly job does, and prove it.

    Without rules nothing is ever removed. There is no way back: look with --dry-run first.
    """
    use_prefix(terminal.settings)
    keep_in_data_dir(terminal.settings)
    rules = terminal.settings.retention
    if dry_run:
        return _show(terminal, _due(terminal))
    with connect(terminal.settings) as client, terminal.err.status("removing"):
        report = run_job("retention", terminal.settings, client)
    if terminal.json:
        terminal.emit(report.as_json())
    else:
        nothing = "nothing is due" if rules else "there are no rules, so every turn stays: see the setting retention"
        terminal.say(f"{report.did or nothing} ({report.seconds:.1f} s)")
    return DONE


def _due(terminal: Terminal) -> list[Due]:
    try:
        catalog = Catalog.open(terminal.settings.catalog_location)
    except NotReady:
        if terminal.settings.data_dir.is_dir():  # nothing has been stored yet
            return []
        raise
    try:
        return catalog.retention.due(terminal.settings.retention, datetime.now(UTC))
    finally:
        catalog.close()


def _show(terminal: Terminal, due: Sequence[Due]) -> int:
    rules = terminal.settings.retention
    total = sum(one.turns for one in due)
    if terminal.json:
        rows = [{**vars(one), "rule": one.rule + 1, "why": reason_of(one, rules)} for one in due]
        terminal.emit({"dry_run": True, "rules": len(rules), "turns": total, "due": rows})
        return DONE
    if due:
        table = Table("rule", "tenant", "source", "why", "sessions", "turns")
        for one in due:
            row = (str(one.rule + 1), plain(one.tenant), plain(one.source), reason_of(one, rules))
            table.add_row(*row, f"{one.sessions:,}", f"{one.turns:,}")
        terminal.out.print(table)
    terminal.say(
        f"turns that would go: {total:,}; rules: {len(rules)}" if rules else "there are no rules: every turn stays"
    )
    return DONE
