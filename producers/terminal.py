"""What every command shares: the common options, output for people or programs, and errors as one clear line. Does I/O.

Exit codes: 0 done, 1 done in part or a check failed, 2 cannot run. Results go to standard output, all else to standard
error.
"""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from producers.errors import ScopeRecallError
from producers.logs import configure_logging
from producers.settings import Settings, load_settings

DONE = 0
IN_PART = 1
CANNOT_RUN = 2
HELP_OPTIONS = {"help_option_names": ["-h", "--help"]}


@dataclass(frozen=True)
class Terminal:
    """One command's settings and the way it speaks."""

    settings: Settings
    json: bool
    out: Console
    err: Console

    def emit(self, result: dict[str, Any]) -> None:
        """Print one JSON object on one line."""
        click.echo(json.dumps(result, ensure_ascii=False, default=str))

    def progress(self, *, transient: bool = True) -> Progress:
        """A progress bar on standard error; silent when that is not a terminal."""
        return Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=self.err,
            transient=transient,
            disable=not self.err.is_terminal,
        )


def command(**attributes: Any) -> Callable[[Callable[..., int | None]], click.Command]:
    """A click command with the common options; the function gets a `Terminal` first and returns its exit code."""

    def decorate(function: Callable[..., int | None]) -> click.Command:
        @functools.wraps(function)
        def run(
            config: Path | None, data_dir: Path | None, redis_url: str | None, as_json: bool, **options: Any
        ) -> None:
            overrides = {name: options.pop(name) for name in list(options) if name in Settings.model_fields}
            with errors_as_exit_codes(as_json=as_json):
                settings = load_settings(config, data_dir=data_dir, redis_url=redis_url, **overrides)
                configure_logging(settings.log_level)
                terminal = Terminal(settings, as_json, Console(), Console(stderr=True))
                code = function(terminal, **options)
            sys.exit(code or DONE)

        decorated: Callable[..., Any] = run
        for option in reversed(_common_options()):
            decorated = option(decorated)
        made: Callable[..., click.Command] = click.command(context_settings=HELP_OPTIONS, **attributes)
        return made(decorated)

    return decorate


def examples(*lines: str) -> str:
    """An epilog that keeps its line breaks."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


class errors_as_exit_codes:  # noqa: N801  # reads as what it does, like contextlib's own
    """Context manager: the project's errors, a broken pipe and Ctrl-C become a message and an exit code."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, ScopeRecallError):
            if self._as_json:
                click.echo(json.dumps({"error": str(error), "type": type(error).__name__}, ensure_ascii=False))
            else:
                click.echo(f"error: {error}", err=True)
            sys.exit(CANNOT_RUN)
        if isinstance(error, BrokenPipeError):
            sys.stderr.close()  # the reader has gone; nothing more can be said to it
            sys.exit(IN_PART)
        if isinstance(error, KeyboardInterrupt):
            click.echo("interrupted", err=True)
            sys.exit(IN_PART)


def _common_options() -> list[Callable[[Callable[..., Any]], Callable[..., Any]]]:
    return [
        click.option("--config", type=click.Path(path_type=Path), help="TOML file with settings."),
        click.option("--data-dir", type=click.Path(path_type=Path), help="Where the stores live."),
        click.option("--redis-url", help="Redis to use instead of the embedded one."),
        click.option("--json", "as_json", is_flag=True, help="Print for programs: one JSON object on standard output."),
    ]
