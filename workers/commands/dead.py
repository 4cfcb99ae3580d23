"""`scope-recall dead list|replay|drop`: the dead letters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime
from itertools import islice
from typing import Any

import click
from rich.table import Column, Table

from producers.connection import connect, mapped_errors
from producers.errors import UsageError
from producers.terminal import DONE, HELP_OPTIONS, Terminal, command, examples, plain
from workers.dead_letters import Choice, DeadLetter, DeadLetters, ReasonGroup

MIN_REASON_WIDTH = 28
"""What a person needs most is readable on a narrow terminal too."""


@click.group(short_help="List, replay or drop dead letters.", context_settings=HELP_OPTIONS)
def dead() -> None:
    """Events that were accepted and could not be stored, kept until someone decides."""


_reason_option: Callable[[Any], Any] = click.option(
    "--reason", default="", metavar="TEXT", help="Only letters whose reason contains TEXT."
)
_all_option: Callable[[Any], Any] = click.option("--all", "everything", is_flag=True, help="All of them.")
_ids_argument: Callable[[Any], Any] = click.argument("ids", nargs=-1)


@command(
    name="list",
    short_help="Show the dead letters, oldest first.",
    epilog=examples("scope-recall dead list", "scope-recall dead list --by-reason"),
)
@click.option("--limit", type=click.IntRange(min=1), default=100, show_default=True, help="Letters to show.")
@click.option("--by-reason", is_flag=True, help="Count them by reason instead, with first and last time.")
@_reason_option
def list_(terminal: Terminal, limit: int, by_reason: bool, reason: str) -> int:
    """Show the dead letters with reason, counts and times. With --json, one object a line."""
    with mapped_errors(terminal.settings), connect(terminal.settings) as client:
        letters = DeadLetters(client, terminal.settings)
        total = letters.count()
        choice = Choice(reason=reason)
        # With more letters than are shown, the reasons are what tells people of the rest.
        groups = letters.by_reason(choice) if by_reason or (total > limit and not terminal.json) else []
        shown = [] if by_reason else list(islice(letters.all(choice), limit))
    if terminal.json:
        for one in groups if by_reason else shown:
            terminal.emit(asdict(one))
        return DONE
    if groups:
        terminal.out.print(_reasons(groups))
    if not by_reason:
        terminal.out.print(_letters(shown))
        terminal.say(f"{len(shown)} of {total} dead letters")
    return DONE


@command(
    short_help="Put dead letters back onto their stream.",
    epilog=examples(
        "scope-recall dead replay --all",
        "scope-recall dead replay 1795987028254-0",
        'scope-recall dead replay --reason "HTTP 400"',
    ),
)
@_ids_argument
@_reason_option
@_all_option
def replay(terminal: Terminal, ids: tuple[str, ...], reason: str, everything: bool) -> int:
    """Try again to store these dead letters. They keep their place among the revisions of their turn."""
    return _act(terminal, "replay", ids, reason, everything)


@command(
    short_help="Delete dead letters for good.",
    epilog=examples("scope-recall dead drop 1795987028254-0", "scope-recall dead drop --all"),
)
@_ids_argument
@_reason_option
@_all_option
def drop(terminal: Terminal, ids: tuple[str, ...], reason: str, everything: bool) -> int:
    """Delete these dead letters: what they hold is gone."""
    return _act(terminal, "drop", ids, reason, everything)


def _act(terminal: Terminal, verb: str, ids: tuple[str, ...], reason: str, everything: bool) -> int:
    if [bool(ids), bool(reason), everything].count(True) != 1:
        raise UsageError(f"dead {verb}: name the ids that `scope-recall dead list` shows, or a --reason, or say --all")
    with mapped_errors(terminal.settings), connect(terminal.settings) as client:
        letters = DeadLetters(client, terminal.settings)
        act = letters.replay if verb == "replay" else letters.drop
        count = act(Choice(ids, reason))
        left = letters.count()
    done = "replayed" if verb == "replay" else "dropped"
    if terminal.json:
        terminal.emit({done: count, "left": left})
    else:
        terminal.say(f"{done} {count}, {left} left")
    return DONE


def _reasons(groups: list[ReasonGroup]) -> Table:
    table = Table("reason", "letters", "first", "last", title="by reason")
    for group in groups:
        table.add_row(plain(group.reason), f"{group.count:,}", _moment(group.first_died_ms), _moment(group.died_ms))
    return table


def _letters(shown: list[DeadLetter]) -> Table:
    reason = Column("reason", min_width=MIN_REASON_WIDTH, overflow="fold")
    table = Table(Column("id", no_wrap=True), "tenant", "session", "turn", reason, "tried", "died", "first", "last")
    for letter in shown:
        table.add_row(
            letter.id,
            plain(letter.tenant or "?"),
            plain(letter.session_id or "?"),
            str(letter.turn_index if letter.turn_index is not None else "?"),
            plain(letter.reason),
            f"{letter.deliveries}x",
            f"{letter.deaths}x",
            _moment(letter.first_died_ms),
            _moment(letter.died_ms),
        )
    return table


def _moment(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


dead.add_command(list_)
dead.add_command(replay)
dead.add_command(drop)
