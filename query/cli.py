"""The one command, `scope-recall`: it mounts the three packages' subcommands and imports each only when it is used."""

from __future__ import annotations

import importlib
from importlib.metadata import version

import click

from producers.terminal import CANNOT_RUN, missing_extra

_SUBCOMMANDS = {
    "up": ("workers.commands.up", "Run the whole system in one process tree."),
    "demo": ("query.commands.demo", "Run the system on real turns, recall some, and stop."),
    "push": ("producers.cli", "Push turn events (JSON lines) onto the stream."),
    "backfill": ("workers.commands.backfill", "Import old transcripts of every kind."),
    "drain": ("workers.commands.drain", "Wait until every accepted turn can be recalled."),
    "recall": ("query.commands.recall", "Ask a question; get the turns that answer it."),
    "sessions": ("query.commands.sessions", "List a tenant's sessions, newest first."),
    "history": ("query.commands.history", "Show what was said in a session, in order."),
    "count": ("query.commands.count", "Count the turns that say a text, by day or session."),
    "hermes": ("producers.hermes.commands", "Put the memory provider into Hermes, or take it out."),
    "eval": ("query.commands.eval", "Measure recall on a labelled set."),
    "status": ("workers.commands.status", "Show streams, queues, workers and stores."),
    "dead": ("workers.commands.dead", "List, replay or drop dead letters."),
    "forget": ("workers.commands.forget", "Erase a tenant's, session's or agent's turns, and prove it."),
    "retention": ("workers.commands.retention", "Remove what the retention rules no longer keep."),
    "maintain": ("workers.commands.maintain", "List, run or look back at the maintenance jobs."),
    "reembed": ("workers.commands.reembed", "Change the embedder without downtime, or back."),
    "backup": ("workers.commands.backup", "Copy the whole system to a folder while it runs."),
    "restore": ("workers.commands.restore", "Restore a backup into an empty data dir."),
    "doctor": ("workers.commands.doctor", "Check the installation and say what to change."),
    "settings": ("producers.cli", "List the settings and their values."),
    "intake": ("workers.commands.parts", "Run the intake: stream to ingest jobs."),
    "worker": ("workers.commands.parts", "Run an ingest or maintenance worker."),
    "scheduler": ("workers.commands.parts", "Run the scheduler of maintenance jobs."),
    "serve": ("query.commands.serve", "Run the query service: push and recall over HTTP."),
    "keys": ("query.commands.keys", "Create, list or revoke keys of the query service."),
    "chat": ("query.commands.chat", "Talk with a model that remembers."),
}
"""Command name → module that holds it and its line in `--help`."""


class MissingExtra(click.ClickException):
    """The command's extra is not installed."""

    exit_code = CANNOT_RUN


class LazyGroup(click.Group):
    """A group whose commands are imported when they are called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_SUBCOMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _SUBCOMMANDS:
            return None
        module = _SUBCOMMANDS[cmd_name][0]
        try:
            found = getattr(importlib.import_module(module), "eval_" if cmd_name == "eval" else cmd_name)
        except ModuleNotFoundError as error:
            message = missing_extra(error)
            if message is None:
                raise
            raise MissingExtra(message) from None
        assert isinstance(found, click.Command)
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in _SUBCOMMANDS.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(version("scope-recall-hermes"), prog_name="scope-recall")
def main() -> None:
    """Long-term recall for agent fleets.

    Agents push turn events; workers chunk, embed and store them; recall brings the right ones back, within scope.
    Try `scope-recall demo` first.
    """


if __name__ == "__main__":
    main()
