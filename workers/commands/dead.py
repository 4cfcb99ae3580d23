"""`scope-recall dead list|replay|drop`: the dead letters."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime

import click
from rich.table import Column, Table

from producers.connection import connect, mapped_errors
from producers.errors import UsageError
from producers.terminal import DONE, HELP_OPTIONS, Terminal, command, examples
from workers.dead_letters import DeadLetters


@click.group(short_help="List, replay or drop dead letters.", context_settings=HELP_OPTIONS)
def dead() -> None:
    """Events that were accepted and could not be stored, kept until someone decides."""


@command(name="list", short_help="Show the dead letters, oldest first.", epilog=examples("scope-recall dead list"))
@click.option("--limit", type=click.IntRange(min=1), default=100, show_default=True, help="Letters to show.")
def list_(terminal: Terminal, limit: int) -> int:
    """Show the dead letters with reason and times. With --json, one object a line."""
    with mapped_errors(terminal.settings):
        letters = DeadLetters(connect(terminal.settings), terminal.settings)
        total = letters.count()
        shown = [letter for letter, _ in zip(letters.all(), range(limit), strict=False)]
    if terminal.json:
        for letter in shown:
            terminal.emit(asdict(letter))
        return DONE
    table = Table(Column("id", no_wrap=True), "tenant", "session", "turn", "reason", "deliveries", "accepted", "died")
    for letter in shown:
        table.add_row(
            letter.id,
            letter.tenant or "?",
            letter.session_id or "?",
            str(letter.turn_index if letter.turn_index is not None else "?"),
            letter.reason,
            str(letter.deliveries),
            _moment(letter.accepted_ms),
            _moment(letter.died_ms),
        )
    terminal.out.print(table)
    terminal.say(f"{len(shown)} of {total} dead letters")
    return DONE


@command(
    short_help="Put dead letters back onto their stream.",
    epilog=examples("scope-recall dead replay --all", "scope-recall dead replay 1795987028254-0"),
)
@click.argument("ids", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="All of them.")
def replay(terminal: Terminal, ids: tuple[str, ...], everything: bool) -> int:
    """Try again to store these dead letters. They keep their place among the revisions of their turn."""
    return _act(terminal, "replay", ids, everything)


@command(
    short_help="Delete dead letters for good.",
    epilog=examples("scope-recall dead drop 1795987028254-0", "scope-recall dead drop --all"),
)
@click.argument("ids", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="All of them.")
def drop(terminal: Terminal, ids: tuple[str, ...], everything: bool) -> int:
    """Delete these dead letters: what they hold is gone."""
    return _act(terminal, "drop", ids, everything)


def _act(terminal: Terminal, verb: str, ids: tuple[str, ...], everything: bool) -> int:
    if bool(ids) == everything:
        raise UsageError(f"dead {verb}: name the ids that `scope-recall dead list` shows, or say --all")
    chosen = None if everything else list(ids)
    with mapped_errors(terminal.settings):
        letters = DeadLetters(connect(terminal.settings), terminal.settings)
        count = letters.replay(chosen) if verb == "replay" else letters.drop(chosen)
        left = letters.count()
    done = "replayed" if verb == "replay" else "dropped"
    if terminal.json:
        terminal.emit({done: count, "left": left})
    else:
        terminal.say(f"{done} {count}, {left} left")
    return DONE


def _moment(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


dead.add_command(list_)
dead.add_command(replay)
dead.add_command(drop)
