"""`scope-recall backfill`: import old transcripts."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import click
from rich.progress import Progress
from rich.table import Table

from producers.cli import send_spool
from producers.errors import NotReady, UsageError
from producers.settings import Settings
from producers.spool import FOLDER, spooled_for_others
from producers.stream import EventStream
from producers.terminal import DONE, IN_PART, Terminal, command, examples, moment, plain
from producers.transcripts.port import ReadOptions, UnknownFormat, Unreadable
from producers.transcripts.registry import READERS, detect, reader
from producers.transcripts.walk import Found, Passed, Trouble, Wanted, walk
from workers.backfill.building import Target
from workers.backfill.importer import FileToRead, Importer
from workers.backfill.report import FileReport, Report, shown_path
from workers.backfill.running import alone
from workers.stores.catalog import Catalog

NICENESS = 10
"""Old transcripts can wait; live turns and the encoder go first."""
SHARES = 1000
"""Steps of the progress bar a file."""
MAX_SHOWN = 20
"""Bad places and paths shown to a person; `--json` has them all."""
EXAMPLE_CHARS = 100
SLOWEST, FASTEST = 0.01, 1e6
UNKNOWN = "in no format that is known"
UNKNOWN_SHOWN = 3


def number(context: click.Context, parameter: click.Parameter, value: float | None) -> float | None:
    """Not `nan`, which lies in every range."""
    if value is not None and math.isnan(value):
        raise click.BadParameter("nan is no number", context, parameter)
    return value


@command(
    short_help="Import old transcripts of every kind.",
    epilog=examples(
        "scope-recall backfill ~/.claude/projects --tenant acme --dry-run",
        "scope-recall backfill ~/.hermes/state.db ~/.codex/sessions --tenant acme --since 2026-01-01",
        "scope-recall backfill conversations.json --format chatgpt --tenant me --tool-results skip",
    ),
)
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--tenant", default="default", show_default=True, help="Whose turns they become.")
@click.option("--agent", help="Agent id of turns whose transcript names none.")
@click.option("--session-prefix", default="", help="Put before each session's id.")
@click.option("--format", "format_name", type=click.Choice(list(READERS)), help="Not told by content, but this one.")
@click.option("--tool-results", type=click.Choice(["full", "head", "skip"]), default="head", show_default=True)
@click.option(
    "--tool-result-chars", type=click.IntRange(min=1), help="Characters that `head` keeps of a tool's result."
)
@click.option("--thinking", is_flag=True, help="Keep thinking as well.")
@click.option("--since", help="Only what was said at or after this time: 2026-01-31 (UTC) or with time and offset.")
@click.option("--until", help="Only what was said before this time.")
@click.option("--include", multiple=True, help="Only files whose name or path matches this glob.")
@click.option("--exclude", multiple=True, help="No files or folders whose name or path matches this glob.")
@click.option("--rate", type=click.FloatRange(SLOWEST, FASTEST), callback=number, help="Most turns a second.")
@click.option("--again", is_flag=True, help="Also what was imported before: for turns that were forgotten or dropped.")
@click.option("--dry-run", is_flag=True, help="Show what would be imported and left out, and change nothing.")
def backfill(
    terminal: Terminal,
    paths: tuple[Path, ...],
    tenant: str,
    agent: str | None,
    session_prefix: str,
    format_name: str | None,
    thinking: bool,
    tool_results: Any,
    since: str | None,
    until: str | None,
    include: tuple[str, ...],
    exclude: tuple[str, ...],
    rate: float | None,
    again: bool,
    dry_run: bool,
) -> int:
    """Import the transcripts in PATHS, files or folders, through the backfill stream, behind live turns.

    It can be interrupted and run again: each turn is imported once, also from resumed copies, branches and files that
    have grown. Exit 1 when something could not be read.
    """
    settings = terminal.settings
    target = Target(tenant, agent, session_prefix, moment("since", since), moment("until", until))
    _check(settings, target, paths)
    os.nice(NICENESS)
    options = ReadOptions(thinking, tool_results, settings.tool_result_chars)
    started = time.monotonic()
    finding = Finding(paths, Wanted(include, exclude), format_name)
    with ExitStack() as opened:
        opened.enter_context(alone(settings))
        catalog = opened.enter_context(closing(Catalog.open(settings.catalog_location, create=True)))
        stream = None if dry_run else opened.enter_context(EventStream(settings, "backfill"))
        bar = opened.enter_context(terminal.progress())
        importer = Importer(
            settings, catalog.imports, target, options, stream=stream, rate=rate, again=again,
            on_progress=Shown(bar).update,
        )  # fmt: skip
        report = finding.report = importer.report
        try:
            importer.run(finding.files())
        except KeyboardInterrupt:
            bar.stop()
            show(terminal, report, seconds=time.monotonic() - started, dry_run=dry_run)
            raise
        if stream is not None:
            report.spooled, report.warning = send_spool(stream, settings)
            report.warning = report.warning or _lost_way(settings)
    show(terminal, report, seconds=time.monotonic() - started, dry_run=dry_run)
    return IN_PART if report.bad else DONE


def _check(settings: Settings, target: Target, paths: tuple[Path, ...]) -> None:
    """Raises what is wrong with the options before anything is opened."""
    if target.since and target.until and target.since >= target.until:
        since, until = target.since.isoformat(), target.until.isoformat()
        raise UsageError(f"--since {since} is not before --until {until}; swap them or widen the range")
    target.check()
    for path in paths:
        if not path.exists():
            raise UsageError(f"{shown_path(path)}: no such file or folder")
    if not settings.data_dir.is_dir() and settings.catalog_url is None:
        raise NotReady(f"no data dir at {settings.data_dir}: start `scope-recall up`, or name another with --data-dir")


def _lost_way(settings: Settings) -> str:
    """What was imported for a Redis with another address counts as imported, and is sent to none but that."""
    others = spooled_for_others(settings)
    if not sum(others.values()):
        return ""
    return (
        f"{sum(others.values()):,} turns in {settings.data_dir / FOLDER} wait for another Redis ({', '.join(others)}). "
        "Push or drain with its address to send them; if the address was wrong, import the files with --again"
    )


class Finding:
    """The files among the paths, each with its reader; what is none goes to the report."""

    def __init__(self, paths: tuple[Path, ...], wanted: Wanted, format_name: str | None) -> None:
        self._paths = paths
        self._wanted = wanted
        self._format = format_name
        self.report = Report()

    def files(self) -> Iterator[FileToRead]:
        for step in walk(self._paths, self._wanted):
            match step:
                case Trouble(path, reason):
                    self.report.not_read.append((shown_path(path), reason))
                case Passed(_, reason):
                    self.report.passed[reason] += 1
                case Found(path, named):
                    try:
                        yield FileToRead(path, reader(self._format) if self._format else detect(path))
                    except Unreadable as error:
                        if named or not isinstance(error, UnknownFormat):
                            self.report.not_read.append((shown_path(path), str(error)))
                        else:
                            self.report.unknown.append(shown_path(path))
                            self.report.passed[UNKNOWN] += 1
                    except OSError as error:
                        self.report.not_read.append((shown_path(path), error.strerror or type(error).__name__))


class Shown:
    """The progress bar: turns sent, how fast, files, and the share of the file at hand."""

    def __init__(self, bar: Progress) -> None:
        self._bar = bar
        self._started = time.monotonic()
        self._task = bar.add_task("importing", total=None)

    def update(self, report: Report, share: float) -> None:
        file = report.files[-1]
        rate = report.imported / max(time.monotonic() - self._started, 1.0)
        text = f"{report.imported:,} turns ({rate:,.0f} a second), {len(report.files):,} files, {Path(file.path).name}"
        self._bar.update(self._task, description=text, total=SHARES, completed=int(share * SHARES))


def show(terminal: Terminal, report: Report, *, seconds: float, dry_run: bool) -> None:
    """The closing report."""
    if terminal.json:
        terminal.emit(report.as_json(seconds=seconds, dry_run=dry_run))
        return
    table = Table("format", "files", "turns", "already there", "left out", "bad", title="what was imported")
    for name, files in report.by_format().items():
        table.add_row(
            name,
            f"{len(files):,}",
            f"{sum(one.imported for one in files):,}",
            f"{sum(one.already_there for one in files):,}",
            f"{sum(one.left_out.total() for one in files):,}",
            f"{sum(one.all_bad for one in files):,}",
        )
    if dry_run:
        table.title = "what would be imported"
    terminal.out.print(table)
    reasons = report.left_out() + report.passed
    if reasons:
        left = Table("left out because", "items")
        for reason, count in reasons.most_common():
            left.add_row(reason, f"{count:,}")
        terminal.out.print(left)
    if report.unknown:
        shown = ", ".join(report.unknown[:UNKNOWN_SHOWN])
        terminal.note(plain(f"{UNKNOWN}: {shown}{', …' if len(report.unknown) > UNKNOWN_SHOWN else ''}"))
    for event in report.examples:
        said = " ".join(event.content.split())[:EXAMPLE_CHARS]
        terminal.say(plain(f"  {event.session_id} {event.turn_index} {event.role}: {said}"))
    verb = "would import" if dry_run else "imported"
    rate = report.imported / seconds if seconds else 0.0
    terminal.say(f"{verb} {report.imported:,} turns in {seconds:.1f} s ({rate:,.0f} a second)")
    if report.warning:
        terminal.note(f"warning: {report.warning}", style="yellow")
    _note_bad(terminal, report)


def _note_bad(terminal: Terminal, report: Report) -> None:
    lines = [f"{path}: {reason}" for path, reason in report.not_read]
    for file in report.files:
        lines += _bad_of(file)
    for line in lines[:MAX_SHOWN]:
        terminal.note(plain(f"not imported: {line}"))
    if report.bad > MAX_SHOWN:
        terminal.note(f"not imported: {report.bad - MAX_SHOWN:,} more places; --json names them")


def _bad_of(file: FileReport) -> list[str]:
    unreadable = [f"{file.path}: {file.unreadable}"] if file.unreadable is not None else []
    if file.bad_earlier:
        places = "bad place" if file.bad_earlier == 1 else "bad places"
        earlier = (
            f"{file.bad_earlier:,} {places}, told when they were read; --again --dry-run reads and names them again"
        )
        unreadable.append(f"{file.path}: {earlier}")
    return unreadable + [f"{file.path}, {bad.place}: {bad.reason}" for bad in file.bad]
