"""`scope-recall forget`: erase turns for good, and prove it."""

from __future__ import annotations

import sys

import click

from producers.errors import UsageError
from producers.terminal import DONE, IN_PART, Terminal, command, examples, moment
from workers.maintenance.erasure import Report
from workers.maintenance.forget import count, resume
from workers.maintenance.forget import forget as forget_selection
from workers.queues import use_prefix
from workers.stores.selection import Selection
from workers.temporary import keep_in_data_dir


@command(
    short_help="Erase a tenant's, session's or agent's turns, and prove it.",
    epilog=examples(
        "scope-recall forget --tenant acme --session deploy-7",
        "scope-recall forget --tenant acme --before 2026-01-31 --dry-run",
        "scope-recall forget --resume",
    ),
)
@click.option("--tenant", help="Whose turns. Required, except with --resume.")
@click.option("--session", help="Only this session's.")
@click.option("--agent", help="Only this agent's.")
@click.option("--before", help="Only what was said before this time: 2026-01-31 (UTC) or 2026-01-31T09:00:00+08:00.")
@click.option("--dry-run", is_flag=True, help="Count what would be forgotten, and change nothing.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--verify/--no-verify", default=True, show_default=True, help="Search every file and Redis key after it.")
@click.option("--resume", "resumes", is_flag=True, help="Only finish what was interrupted.")
def forget(
    terminal: Terminal,
    tenant: str | None,
    session: str | None,
    agent: str | None,
    before: str | None,
    dry_run: bool,
    yes: bool,
    verify: bool,
    resumes: bool,
) -> int:
    """Erase turns from the stores, streams, dead letters, spool and every file, then look for what is left of them.

    Recall returns none of it from the first moment. What was accepted before and is still on its way is dropped when
    it arrives; what is pushed later is a new turn. There is no way back. Exit 1 when it is not proven.
    """
    use_prefix(terminal.settings)
    keep_in_data_dir(terminal.settings)
    narrowing = (session, agent, before)
    if resumes:
        if tenant is not None or any(narrowing):
            raise UsageError("--resume finishes what was begun, all of it; leave out the other options")
        return _resume(terminal)
    if tenant is None:
        raise UsageError("--tenant is missing: name whose turns are to be forgotten")
    selection = Selection(tenant, session, agent, moment("before", before))
    if dry_run or _asks(terminal, yes):
        turns, sessions = count(terminal.settings, selection)
        if dry_run:
            return _show_count(terminal, turns, sessions, selection)
        click.confirm(f"Erase {turns:,} turns in {sessions:,} sessions ({selection}) for good?", abort=True, err=True)
    with terminal.err.status("forgetting") as shown:
        report = forget_selection(
            terminal.settings, selection, verify=verify, on_step=lambda step: shown.update(f"forgetting: {step}")
        )
    return _show(terminal, [report], verify=verify)


def _asks(terminal: Terminal, yes: bool) -> bool:
    """Only a person at a terminal is asked; a script has decided."""
    return not yes and not terminal.json and sys.stdin.isatty() and terminal.err.is_terminal


def _show_count(terminal: Terminal, turns: int, sessions: int, selection: Selection) -> int:
    if terminal.json:
        terminal.emit({"turns": turns, "sessions": sessions, "dry_run": True})
    else:
        terminal.say(f"{turns:,} stored turns in {sessions:,} sessions would be forgotten ({selection})")
    return DONE


def _resume(terminal: Terminal) -> int:
    with terminal.err.status("forgetting") as shown:
        reports = resume(terminal.settings, on_step=lambda step: shown.update(f"forgetting: {step}"))
    if not reports:
        if terminal.json:
            terminal.emit({"forgets": 0})
        else:
            terminal.say("no forget was interrupted")
    return _show(terminal, reports, verify=True)


def _show(terminal: Terminal, reports: list[Report], *, verify: bool) -> int:
    """One line of the result a forget; with --json one object a line."""
    for report in reports:
        if terminal.json:
            terminal.emit(report.as_json())
            continue
        terminal.say(f"forgot {report.turns:,} turns in {report.chunks:,} chunks, {report.on_their_way:,} on their way")
        if report.search is not None:
            looked = f"{report.search.pieces:,} pieces of them in {report.search.files:,} files and "
            looked += f"{report.search.keys:,} Redis keys"
            terminal.say(f"searched for {looked}: " + ("found" if report.search.found else "none is left"))
            for place in report.search.found:
                terminal.note(f"error: what was forgotten is still in {place}; `scope-recall forget --resume`")
        elif report.verified:
            terminal.say("erased and searched by another forget that ran at the same time")
        for problem in report.problems:
            terminal.note(f"error: not proven: {problem}")
    return DONE if all(report.verified or not verify for report in reports) else IN_PART
