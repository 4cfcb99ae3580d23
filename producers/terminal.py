"""What every command shares: the common options, output for people or programs, and errors as one clear line. Does I/O.

Exit codes: 0 done, 1 done in part or a check failed, 2 cannot run. Results go to standard output, all else to standard
error.
"""

from __future__ import annotations

import functools
import json
import os
import re
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from producers.errors import NotReady, ScopeRecallError, UsageError
from producers.logs import configure_logging
from producers.settings import Settings, load_settings

_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""C0 and C1 control characters but tab and line feed."""
DONE = 0
IN_PART = 1
CANNOT_RUN = 2
LOG_WIDTH = 160
"""Columns of a table in a pipe or a log, where no window cuts it."""
OUR_PACKAGES = ("producers", "workers", "query")
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

    def say(self, text: str, style: str = "") -> None:
        """One line of the result for people; never wrapped, so that a path in it can be copied."""
        self.out.print(text, style=style, soft_wrap=True)

    def note(self, text: str, style: str = "") -> None:
        """One line beside the result: a warning, an error, what goes on."""
        self.err.print(text, style=style, soft_wrap=True)

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


def command(
    *, on_half_restored: bool = False, **attributes: Any
) -> Callable[[Callable[..., int | None]], click.Command]:
    """A click command with the common options; the function gets a `Terminal` first and returns its exit code.

    It is refused on a data dir where a restore was interrupted, unless `on_half_restored`.
    """

    def decorate(function: Callable[..., int | None]) -> click.Command:
        @functools.wraps(function)
        def run(
            config: Path | None, data_dir: Path | None, redis_url: str | None, as_json: bool, **options: Any
        ) -> None:
            overrides = {name: options.pop(name) for name in list(options) if name in Settings.model_fields}
            try:
                settings = load_settings(config, data_dir=data_dir, redis_url=redis_url, **overrides)
                configure_logging(settings.log_level)
                # Content is shown as it is: no markup, no emoji codes, nothing coloured by guess.
                width = None if "COLUMNS" in os.environ or (sys.stdout and sys.stdout.isatty()) else LOG_WIDTH
                out = Console(markup=False, emoji=False, highlight=False, width=width)
                err = Console(markup=False, emoji=False, highlight=False, stderr=True)
                terminal = Terminal(settings, as_json, out, err)
                if not on_half_restored and settings.restore_mark.exists():
                    raise NotReady(
                        f"data dir {settings.data_dir} is half restored: a restore goes on, or was interrupted; run "
                        "`scope-recall restore` with the same folder again, which starts anew"
                    )
                code = function(terminal, **options) or DONE
                if sys.stdout is not None:
                    sys.stdout.flush()  # a full disk shows here, not after the exit code is decided
            except (ScopeRecallError, ModuleNotFoundError, OSError, KeyboardInterrupt) as error:
                code = _exit_code_of(error, as_json=as_json)
            sys.exit(code)

        decorated: Callable[..., Any] = run
        for option in reversed(_common_options()):
            decorated = option(decorated)
        made: Callable[..., click.Command] = click.command(context_settings=HELP_OPTIONS, **attributes)
        return made(decorated)

    return decorate


def examples(*lines: str) -> str:
    """An epilog that keeps its line breaks."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


def plain(text: str) -> str:
    """Text of others, fit for a terminal: what could move its cursor or change its colours becomes visible instead."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)


def moment(option: str, text: str | None) -> datetime | None:
    """An ISO 8601 time with an offset, or a date, which starts at midnight UTC."""
    if text is None:
        return None
    try:
        return datetime.combine(date.fromisoformat(text), datetime.min.time(), UTC)
    except ValueError:
        pass  # not a plain date: a time, or nothing
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(
            f"--{option} {text!r}: not a date such as 2026-01-31 or a time such as 2026-01-31T09:00:00+08:00"
        ) from None
    if found.tzinfo is None:
        raise UsageError(f"--{option} {text!r} has no time zone; add an offset, such as Z or +08:00")
    return found


def missing_extra(error: ModuleNotFoundError) -> str | None:
    """What to install when a package of an extra is missing; None when the module is one of ours."""
    package = (error.name or "").partition(".")[0]
    if package in OUR_PACKAGES:
        return None
    return f"this command needs the package {package}: pip install 'scope-recall-hermes[embedded]'"


def _exit_code_of(error: BaseException, *, as_json: bool) -> int:
    """Say what went wrong in one line, and return the exit code."""
    if isinstance(error, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        return IN_PART
    if isinstance(error, BrokenPipeError):
        # The reader has gone; what is left in the buffer must not fail once more at the interpreter's exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return IN_PART
    if isinstance(error, ModuleNotFoundError):
        message = missing_extra(error)
        if message is None:
            raise error
    elif isinstance(error, OSError):
        message = f"{error.filename or 'output'}: {error.strerror or error}"
    else:
        message = str(error)
    if as_json and not isinstance(error, OSError):
        click.echo(json.dumps({"error": message, "type": type(error).__name__}, ensure_ascii=False))
    else:
        click.echo(f"error: {message}", err=True)
    if isinstance(error, OSError) and sys.stdout is not None:
        with suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return CANNOT_RUN


def _common_options() -> list[Callable[[Callable[..., Any]], Callable[..., Any]]]:
    return [
        click.option("--config", type=click.Path(path_type=Path), help="TOML file with settings."),
        click.option("--data-dir", type=click.Path(path_type=Path), help="Where the stores live."),
        click.option("--redis-url", help="Redis to use instead of the embedded one."),
        click.option("--json", "as_json", is_flag=True, help="Print for programs: one JSON object on standard output."),
    ]
