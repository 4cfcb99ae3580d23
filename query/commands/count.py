"""`scope-recall count`: in how many turns a text is said."""

from __future__ import annotations

from typing import Any, get_args

import click
from rich.table import Table

from producers.events import Role
from producers.terminal import DONE, Terminal, command, examples, plain
from query.commands.scoped import opened_history, scope_of, scope_options
from query.counting import By, Counted, Number
from query.counting import count as count_text


@command(
    short_help="Count the turns that say a text, by day or session.",
    epilog=examples(
        "scope-recall count timeout --tenant acme",
        "scope-recall count 证书 --tenant acme --since 2026-01-01 --by day",
        'scope-recall count "100%" --tenant acme --role user --by session --json',
    ),
)
@click.argument("text")
@scope_options
@click.option("--session", "sessions", multiple=True, help="Only these sessions.")
@click.option("--agent", "agents", multiple=True, help="Only these agents' turns.")
@click.option("--role", "roles", multiple=True, type=click.Choice(get_args(Role)), help="Only these roles.")
@click.option("--by", type=click.Choice(get_args(By)), help="Also for each day (UTC) or session.")
def count(terminal: Terminal, text: str, by: By | None, **filters: Any) -> int:
    """Count in how many turns TEXT is said, and how often.

    TEXT is no pattern: % and _ are themselves. Upper and lower case are alike in every script, and so are letters of
    half and full width. Every turn in scope is looked through, on the catalog only: no models, no Redis.
    """
    scope = scope_of(**filters)
    with opened_history(terminal) as history:
        counted = count_text(text, by, history.said(scope))
    if terminal.json:
        terminal.emit(counted.as_json())
    else:
        show(terminal, counted)
    return DONE


def show(terminal: Terminal, counted: Counted) -> None:
    """The numbers for people."""
    if counted.by is not None and counted.groups:
        table = Table(f"{counted.by} (UTC)" if counted.by == "day" else counted.by, "turns", "times")
        table.columns[0].overflow = "fold"
        for name, number in counted.listed():
            table.add_row("no time" if name is None else plain(name), f"{number.turns:,}", f"{number.times:,}")
        terminal.out.print(table)
        if counted.left_out:
            terminal.say(f"and {counted.left_out:,} more; --since, --until and --session narrow", style="dim")
    terminal.say(_in_all(counted.all))


def _in_all(number: Number) -> str:
    if not number.turns:
        return "said in no turn of this scope"
    turns = "turn" if number.turns == 1 else "turns"
    return f"said in {number.turns:,} {turns}, {number.times:,} {'time' if number.times == 1 else 'times'}"
