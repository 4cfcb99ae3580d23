"""What the commands share that ask the catalog alone: whose turns and said when, and the open catalog. Does I/O."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import click

from producers.errors import UsageError
from producers.terminal import Terminal, moment
from workers.stores.catalog import Catalog
from workers.stores.history import History
from workers.stores.scope import Scope

MINUTES = "%Y-%m-%d %H:%M"
"""How a table shows a time, which is in UTC."""


def scope_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options of every scope: tenant, since and until."""
    options = (
        click.option("--tenant", help="Whose memory to look into. Required."),
        click.option("--since", help="Only what was said at or after this time: 2026-01-31 (UTC), or with an offset."),
        click.option("--until", help="Only what was said before this time."),
    )
    for option in reversed(options):
        command = option(command)
    return command


def scope_of(*, tenant: str | None, since: str | None, until: str | None, **filters: Any) -> Scope:
    """A scope from the command's options. Raises `UsageError`."""
    if not tenant:
        raise UsageError("--tenant is missing; it names whose memory to look into")
    return Scope(tenant, since=moment("since", since), until=moment("until", until), **filters)


@contextmanager
def opened_history(terminal: Terminal) -> Iterator[History]:
    """The stored turns. Raises `NotReady` when nothing was ever stored."""
    with closing(Catalog.open(terminal.settings.catalog_location)) as catalog:
        yield catalog.history
