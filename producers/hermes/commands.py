"""`scope-recall hermes install|status|uninstall`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click
from rich.table import Column, Table

from producers.errors import UsageError
from producers.hermes.install import State, homes, install, state, uninstall
from producers.hermes.provider import NAME
from producers.terminal import DONE, HELP_OPTIONS, IN_PART, Terminal, command, examples, plain


@click.group(short_help="Put the memory provider into Hermes, or take it out.", context_settings=HELP_OPTIONS)
def hermes() -> None:
    """Hermes' memory provider: install it into a home or its profiles, see how it stands, take it out."""


_profile_option: Callable[[Any], Any] = click.option(
    "--profile", "profiles", multiple=True, metavar="P", help="This profile; can be repeated."
)
_all_option: Callable[[Any], Any] = click.option(
    "--all", "everywhere", is_flag=True, help="The main home and every profile."
)


@command(
    name="install",
    short_help="Write the plug-in's directory into Hermes' home.",
    epilog=examples("scope-recall hermes install", "scope-recall hermes install --profile coder"),
)
@_profile_option
@_all_option
def install_(terminal: Terminal, profiles: tuple[str, ...], everywhere: bool) -> int:
    """Write plugins/scope-recall into the home of this environment (HERMES_HOME, else ~/.hermes) or of profiles.

    A directory that this command did not write is left alone. Nothing is installed into Hermes' own environment: the
    plug-in is imported from this installation.
    """
    code = _each(terminal, homes(profiles, everywhere), install)
    if not terminal.json and code == DONE:
        terminal.say(f"now have Hermes use it: hermes config set memory.provider {NAME}")
    return code


@command(
    name="status",
    short_help="Show where the plug-in is installed and active.",
    epilog=examples("scope-recall hermes status", "scope-recall hermes status --json"),
)
def status_(terminal: Terminal) -> int:
    """Show for the main home and every profile whether it is installed, active, and whose memory its owner has."""
    found = [state(home) for home in homes((), everywhere=True)]
    _show(terminal, found)
    broken = any(one.problem or one.installed in ("outdated", "foreign") for one in found)
    return IN_PART if broken else DONE


@command(
    name="uninstall",
    short_help="Remove the plug-in's directory from Hermes' home.",
    epilog=examples("scope-recall hermes uninstall --all"),
)
@_profile_option
@_all_option
def uninstall_(terminal: Terminal, profiles: tuple[str, ...], everywhere: bool) -> int:
    """Remove what `install` wrote. Settings stay, and so does what was said: `scope-recall forget` erases that."""
    return _each(terminal, homes(profiles, everywhere), uninstall)


for _one in (install_, status_, uninstall_):
    hermes.add_command(_one)


def _each(terminal: Terminal, where: Sequence[Path], act: Callable[[Path], Any]) -> int:
    """Do it in each home; one that refuses does not keep the others from it. Raises `UsageError` when all refuse."""
    refusals: list[UsageError] = []
    for home in where:
        try:
            act(home)
        except UsageError as error:
            refusals.append(error)
    if len(refusals) == len(where):
        raise refusals[0]
    for refusal in refusals:
        terminal.note(f"error: {refusal}", style="red")
    states = [state(home) for home in where]
    _show(terminal, states)
    return IN_PART if refusals or any(one.problem for one in states) else DONE


def _show(terminal: Terminal, states: Sequence[State]) -> None:
    if terminal.json:
        terminal.emit({"homes": [_as_json(one) for one in states]})
        return
    whole = (Column(name, overflow="fold") for name in ("its owner's tenant", "home"))  # to be copied
    table = Table("profile", "installed", "active", *whole)
    for one in states:
        active = "yes" if one.active else "no"
        table.add_row(*map(plain, (one.profile, one.installed, active, one.tenant, str(one.home))))
    terminal.out.print(table)
    for one in states:
        if one.problem:
            terminal.note(f"error: {one.problem}", style="red")


def _as_json(one: State) -> dict[str, Any]:
    return {
        "profile": one.profile,
        "home": str(one.home),
        "installed": one.installed,
        "active": one.active,
        "tenant": one.tenant or None,
        "agent": one.agent or None,
        "problem": one.problem or None,
    }
