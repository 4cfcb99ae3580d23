"""`scope-recall sessions`: which sessions of a tenant are stored."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import click
from rich.table import Table

from producers.terminal import DONE, Terminal, command, examples, plain
from query.commands.scoped import MINUTES, opened_history, scope_of, scope_options
from query.history import MAX_SESSIONS, SESSIONS_SHOWN, sessions_answer


@command(
    short_help="List a tenant's sessions, newest first.",
    epilog=examples(
        "scope-recall sessions --tenant acme",
        "scope-recall sessions --tenant acme --agent hermes --since 2026-01-31 --limit 100 --json",
    ),
)
@scope_options
@click.option("--agent", "agents", multiple=True, help="Only these agents' turns.")
@click.option("--source", "sources", multiple=True, help="Only turns from these sources.")
@click.option(
    "--limit", type=click.IntRange(1, MAX_SESSIONS), default=SESSIONS_SHOWN, show_default=True, help="Sessions to list."
)
def sessions(terminal: Terminal, limit: int, **filters: Any) -> int:
    """List sessions with their turns, first and last time and agents, those that went on last first.

    With filters, all of it is of the turns that they keep. It reads the catalog only: no models, no Redis.
    """
    scope = scope_of(**filters)
    with opened_history(terminal) as history:
        found, total = history.sessions(scope, limit)
    if terminal.json:
        terminal.emit(sessions_answer(found, total))
        return DONE
    if not found:
        terminal.say("no sessions in this scope")
        return DONE
    table = Table("session", "turns", "first (UTC)", "last (UTC)", "agents")
    for column in (table.columns[0], table.columns[-1]):
        column.overflow = "fold"
    for one in found:
        table.add_row(plain(one.session_id), f"{one.turns:,}", _shown(one.first), _shown(one.last),
                      plain(", ".join(one.agents)))  # fmt: skip
    terminal.out.print(table)
    if total > len(found):
        more = f"--limit {total} shows all" if total <= MAX_SESSIONS else "--limit shows more"
        terminal.say(f"{len(found):,} of {total:,} sessions: {more}; --agent, --since and --until narrow", style="dim")
    return DONE


def _shown(time: datetime | None) -> str:
    return time.strftime(MINUTES) if time else ""
