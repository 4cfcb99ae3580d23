"""`scope-recall keys create|list|revoke`: who may use the query service."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager

import click
from rich.table import Table

from producers.terminal import DONE, HELP_OPTIONS, Terminal, command, examples, plain
from workers.stores.api_keys import DEFAULT_RIGHTS, RIGHTS, ApiKey, ApiKeys, Right
from workers.stores.catalog import Catalog


@click.group(short_help="Create, list or revoke keys of the query service.", context_settings=HELP_OPTIONS)
def keys() -> None:
    """A key is for one tenant and has rights. Once there ever was one, the service answers nobody without."""


@command(
    short_help="Make a key and show it, once.",
    epilog=examples(
        "scope-recall keys create --tenant acme --name hermes",
        "scope-recall keys create --tenant acme --right recall",
        "scope-recall keys create --tenant ops --right push --right recall --right forget --right admin",
    ),
)
@click.option("--tenant", required=True, help="Whose memory it opens; no other.")
@click.option(
    "--right",
    "rights",
    multiple=True,
    type=click.Choice(RIGHTS),
    default=DEFAULT_RIGHTS,
    show_default=True,
    help="push, recall and forget this tenant's turns; admin: see the whole system's status. May be repeated.",
)
@click.option("--name", default="", help="What people call it, for the list.")
def create(terminal: Terminal, tenant: str, rights: tuple[Right, ...], name: str) -> int:
    """Make a key. It is shown here and never again: only a digest of it is stored."""
    with _api_keys(terminal, create=True) as stored:  # before anything is stored
        key, text = stored.create(tenant, rights, name)
    if terminal.json:
        terminal.emit(key.as_json() | {"key": text})
        return DONE
    terminal.say(text)
    terminal.note(
        f"key {key.id} for tenant {plain(tenant)} ({', '.join(key.rights)}). Keep it: it is not shown again. From now "
        "on the service answers nobody without a key"
    )
    return DONE


@command(name="list", short_help="Show the keys, without their secrets.", epilog=examples("scope-recall keys list"))
def list_(terminal: Terminal) -> int:
    """Show every key there ever was: id, tenant, rights, and whether it is revoked."""
    with _api_keys(terminal) as stored:
        found = stored.all()
    if terminal.json:
        terminal.emit({"keys": [key.as_json() for key in found]})
    elif found:
        terminal.out.print(_table(found))
    else:
        terminal.say("there are no keys: the service answers whoever asks on this machine, and nobody else")
    return DONE


@command(short_help="End a key, at once and for good.", epilog=examples("scope-recall keys revoke 4f1c2a9b8d3e"))
@click.argument("key_id", metavar="ID")
def revoke(terminal: Terminal, key_id: str) -> int:
    """End the key with this ID (`keys list` shows them). The next request that uses it is refused."""
    with _api_keys(terminal) as stored:
        key = stored.revoke(key_id)
    if terminal.json:
        terminal.emit(key.as_json())
    else:
        terminal.say(f"key {key.id} of tenant {plain(key.tenant)} is revoked")
    return DONE


for subcommand in (create, list_, revoke):
    keys.add_command(subcommand)


@contextmanager
def _api_keys(terminal: Terminal, *, create: bool = False) -> Iterator[ApiKeys]:
    with closing(Catalog.open(terminal.settings.catalog_location, create=create)) as catalog:
        yield catalog.api_keys


def _table(found: list[ApiKey]) -> Table:
    table = Table("id", "tenant", "rights", "name", "created", "state")
    for key in found:
        created = key.created.strftime("%Y-%m-%d %H:%M") if key.created else ""
        state = f"revoked {key.revoked.strftime('%Y-%m-%d %H:%M')}" if key.revoked else "good"
        table.add_row(key.id, plain(key.tenant), ", ".join(key.rights), plain(key.name), created, state)
    return table
