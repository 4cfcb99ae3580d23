"""`scope-recall history`: what was said in a session."""

from __future__ import annotations

import re
import shlex
from typing import Any, get_args

import click
from rich.table import Table

from producers.errors import UsageError
from producers.events import MAX_TURN_INDEX, Role, TurnEvent
from producers.terminal import DONE, Terminal, command, examples, plain
from query.commands.scoped import MINUTES, opened_history, scope_of, scope_options
from query.history import turns_answer
from workers.stores.history import Part
from workers.stores.scope import Scope

TOOL_CHARS = 300
"""Of a tool's output for people; all of it is in JSON."""
_RANGE = re.compile(r"([0-9]{1,19})(?:(-)([0-9]{1,19})?)?|-([0-9]{1,19})")


@command(
    short_help="Show what was said in a session, in order.",
    epilog=examples(
        "scope-recall history --tenant acme --session deploy-7",
        "scope-recall history --tenant acme --session deploy-7 --role user --last 20",
        "scope-recall history --tenant acme --session deploy-7 --turns 10-19 --json",
    ),
)
@scope_options
@click.option("--session", required=True, help="Which session; `scope-recall sessions` lists them.")
@click.option("--role", "roles", multiple=True, type=click.Choice(get_args(Role)), help="Only these roles.")
@click.option("--first", type=click.IntRange(min=1), help="Only the first N of the turns.")
@click.option("--last", type=click.IntRange(min=1), help="Only the last N of the turns.")
@click.option("--turns", "indexes", metavar="A-B", help="Only the turns with indexes from A to B; also A, A- and -B.")
def history(
    terminal: Terminal, session: str, first: int | None, last: int | None, indexes: str | None, **filters: Any
) -> int:
    """Show the turns of a session, whole and in order; a tool's long output only in JSON.

    --first and --last count what the other options keep. It reads the catalog only: no models, no Redis.
    """
    scope = scope_of(sessions=(session,), **filters)
    part = Part(*span_of(indexes), first, last)
    with opened_history(terminal) as stored:
        total = stored.count(scope, part)
        found = list(stored.turns(scope, part))
    if terminal.json:
        terminal.emit(turns_answer(session, found, total))
    elif found:
        show(terminal, found, total)
    else:
        narrowed = any((indexes, scope.roles, scope.since, scope.until))
        terminal.say(_nothing(scope, session, narrowed=narrowed))
    return DONE


def span_of(text: str | None) -> tuple[int, int]:
    """The first and the last index of A-B, A, A- or -B. Raises `UsageError`."""
    if text is None:
        return 0, MAX_TURN_INDEX
    found = _RANGE.fullmatch(text)
    if not found:
        raise UsageError(f"--turns {text!r}: turn indexes are due, such as 10-19, 10- or -19")
    start, dash, end, up_to = found.groups()
    if up_to is not None:
        return 0, int(up_to)
    return int(start), int(end) if end else MAX_TURN_INDEX if dash else int(start)


def show(terminal: Terminal, turns: list[TurnEvent], total: int) -> None:
    """The turns for people."""
    table = Table("turn", "said by", "when (UTC)", "what")
    table.columns[-1].overflow = "fold"
    for turn in turns:
        when = turn.created_at.strftime(MINUTES) if turn.created_at else ""
        content = turn.content
        if turn.role == "tool" and len(content) > TOOL_CHARS:
            content = f"{content[:TOOL_CHARS]}… ({len(content):,} characters; --json has all)"
        table.add_row(str(turn.turn_index), plain(turn.speaker or turn.role), when, plain(content))
    terminal.out.print(table)
    if total > len(turns):
        terminal.say(f"{len(turns):,} of {total:,} turns", style="dim")


def _nothing(scope: Scope, session: str, *, narrowed: bool) -> str:
    how = " that these filters keep" if narrowed else ""
    listing = f"`scope-recall sessions --tenant {shlex.quote(scope.tenant)}` lists its sessions"
    return plain(f"tenant {scope.tenant} has no turns of session {session}{how}; {listing}")
