"""Claude Code: `~/.claude/projects/<cwd>/<uuid>.jsonl` and the files of its sub-agents. Does I/O.

One message of the assistant spans several lines, with results of its own calls between them, and lines of several
sessions and side chains interleave: a message is held until another one of its session begins. A mark names the
earliest line that is held; from there only the lines of held messages are read again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from producers.events import Role
from producers.transcripts.claude_code_message import Message, belongs_to_a_message, has_only_results
from producers.transcripts.claude_code_records import (
    INJECTED,
    INTERNAL_AGENTS,
    LEFT_OUT,
    OTHER_RECORD,
    content_of,
    facts,
    identity,
    internal_agent,
    is_quiet,
    is_record,
    is_synthetic,
    queued_prompt,
    title_of,
)
from producers.transcripts.json_lines import Line, Position, parse_line
from producers.transcripts.line_reading import begin_of, read_lines
from producers.transcripts.port import Bad, Item, LeftOut, Mark, ReadOptions, Said, Sample, State, Unreadable
from producers.transcripts.recent import Recent
from producers.transcripts.text import moment
from producers.transcripts.values import mapping, string

HELD_LINES = 1000
"""A message that got no line for so long is complete; its lines are 10 apart in real files."""
AGE_CHECK_LINES = 100
HELD_CHARS = 4 << 20
"""Together held messages are no larger; then they are said as far as they have come."""
CALLS_REMEMBERED = 128
"""A result names its call only by id; calls run in parallel by the dozen."""
LINKS_REMEMBERED = 256
"""Records of side chains that a later one can name as its parent."""
TITLES_REMEMBERED = 32
DETECTION_LINES = 40
SIGNS_WITHIN = 1000


class ClaudeCodeReader:
    """Claude Code's own transcripts."""

    name = "claude-code"
    in_place = False

    def recognises(self, sample: Sample) -> bool:
        complete = sample.head.split(b"\n")[:DETECTION_LINES]
        if any(is_trace(record) for line in complete for record in parse_line(line, is_record)[0]):
            return False  # the reader of Hermes' exports refuses it
        if any(is_record(record) for line in complete for record in parse_line(line, is_record)[0]):
            return True
        # The first record alone can be longer than the sample; its ids come before its message.
        begin = sample.head[:SIGNS_WITHIN]
        return b"\n" not in sample.head and b'"sessionId":"' in begin and b'"isSidechain":' in begin

    def read(self, path: Path, options: ReadOptions, state: State | None) -> Iterator[Item]:
        for agent, reason in INTERNAL_AGENTS.items():
            if path.name.startswith(f"agent-{agent}"):
                yield LeftOut(reason)
                yield Mark({}, 1.0)
                return
        yield from read_lines(path, _Reading(path, options, state or {}), is_record)


def is_trace(record: dict[str, Any]) -> bool:
    """Whether it is of a trace that Hermes exported in this format."""
    return record.get("version") == "hermes-agent"


@dataclass
class _Held:
    """A message of the assistant, as far as its lines have come."""

    id: str
    begin: Position
    """Before its first line."""
    last_line: int
    message: Message
    records: set[str] = field(default_factory=set)


class _Reading:
    """One pass over a file."""

    def __init__(self, path: Path, options: ReadOptions, state: State) -> None:
        self._path = path
        self._options = options
        self.begin = begin_of(state)
        self._until: int = state.get("until", 0)
        self._again: dict[str, int] = state.get("held", {})
        """Sessions whose held message is read again, with its first line."""
        self._held: dict[str, _Held] = {}
        self._calls = Recent(CALLS_REMEMBERED, state.get("calls"))
        self._roots = Recent(LINKS_REMEMBERED, state.get("roots"))
        self._titles = Recent(TITLES_REMEMBERED, state.get("titles"))

    def state(self, then: Position) -> State:
        begin = min([then, *(held.begin for held in self._held.values())])
        return {
            "line": begin.line,
            "offset": begin.offset,
            "until": then.line,
            "held": {session: held.begin.line + 1 for session, held in self._held.items()},
            "calls": self._calls.state(),
            "roots": self._roots.state(),
            "titles": self._titles.state(),
        }

    def line(self, line: Line) -> Iterator[Item]:
        """What the line adds, and what it shows to be complete."""
        again = line.number <= self._until
        for record in line.records:
            if is_quiet(record):
                if not again:
                    yield LeftOut(LEFT_OUT[record["type"]])
                continue
            turn = self._turn(record, line.number)
            held_since = self._again.get(turn.session, line.number + 1)
            if not again or (line.number >= held_since and belongs_to_a_message(record)):
                yield from map(self._titled, self._record(record, line, turn))
            if sum(held.message.chars for held in self._held.values()) > HELD_CHARS:
                yield from self.finish()
        if not again:
            yield from line.bad()
        if line.number % AGE_CHECK_LINES == 0:
            for session in [s for s, held in self._held.items() if line.number - held.last_line > HELD_LINES]:
                yield from map(self._titled, self._said(session))

    def finish(self) -> Iterator[Item]:
        for session in list(self._held):
            yield from map(self._titled, self._said(session))

    def _said(self, session: str) -> Iterator[Item]:
        held = self._held.pop(session, None)
        if held is not None:
            yield from held.message.finished()

    def _titled(self, item: Item) -> Item:
        """With the title that its session has when the turn is said: a line that is read again gets no later one."""
        if isinstance(item, Said) and (title := self._titles.get(item.metadata.get("parent_session", item.session))):
            return replace(item, metadata={**item.metadata, "title": title})
        return item

    def _turn(self, record: dict[str, Any], line: int) -> Said:
        """What all turns of a record have in common: side chains and sub-agents have a session of their own."""
        own = string(record.get("sessionId")) or self._path.stem
        metadata = dict(facts(record))
        session = own
        if record.get("isSidechain") is True:
            agent = string(record.get("agentId"))
            metadata |= {"parent_session": own, "agent": agent or "side chain"}
            session = f"{own}/agent-{agent}" if agent else f"{own}/sidechain-{self._root(record, own)}"
        time = moment(record.get("timestamp"))
        role: Role = "assistant" if record.get("type") == "assistant" else "user"
        return Said(session, role, "", identity(record), f"line {line}", created_at=time, metadata=metadata)

    def _root(self, record: dict[str, Any], session: str) -> str:
        """The first record of a side chain, found over the parents; one whose parent is lost joins the latest chain."""
        uuid, parent = string(record.get("uuid")), string(record.get("parentUuid"))
        latest = f"latest {session}"
        root = self._roots.get(uuid) or (self._roots.get(parent) or self._roots.get(latest) if parent else None) or uuid
        self._roots.put(uuid, root)
        self._roots.put(latest, root)
        return root

    def _record(self, record: dict[str, Any], line: Line, turn: Said) -> Iterator[Item]:
        kind = record.get("type")
        if is_trace(record):
            raise Unreadable(
                "is a trace that Hermes exported: its ids and times are the export's own; "
                "import state.db, or `hermes sessions export` without --format trace"
            )
        if title := title_of(record):
            self._titles.put(string(record.get("sessionId")) or self._path.stem, title)
        if internal := internal_agent(record):
            yield LeftOut(internal)
        elif kind == "assistant" or kind == "user":
            content = content_of(record)
            if content is None:
                yield Bad(f"line {line.number}", "a message without content")
            elif is_synthetic(record):
                yield LeftOut("synthetic message")
            elif kind == "assistant":
                yield from self._assistant(record, content, line, turn)
            else:
                yield from self._user(record, content, turn)
        elif kind == "attachment" and (prompt := queued_prompt(record)) is not None:
            yield from self._user(record, prompt, turn)
        elif isinstance(kind, str):
            yield LeftOut(LEFT_OUT.get(kind, OTHER_RECORD))
        else:
            yield Bad(f"line {line.number}", "a record without a type")

    def _assistant(self, record: dict[str, Any], content: Any, line: Line, turn: Said) -> Iterator[Item]:
        name = string(mapping(record.get("message")).get("id"))
        held = self._held.get(turn.session)
        if held is None or not name or held.id != name:
            yield from self._said(turn.session)
            held = _Held(name, Position(line.number - 1, line.start), line.number, self._message())
            self._held[turn.session] = held
        held.last_line = line.number
        if turn.origin in held.records:
            held.message.items.append(LeftOut("duplicate"))
        else:
            held.records.add(turn.origin)
            held.message.add(content, turn)

    def _user(self, record: dict[str, Any], content: Any, turn: Said) -> Iterator[Item]:
        if record.get("isCompactSummary") is True:
            yield LeftOut("compaction summary")
            return
        held = self._held.get(turn.session)
        only_results = has_only_results(content)
        if held is not None and only_results:  # the message may go on behind the results of its calls
            held.message.add(content, turn)
            return
        yield from self._said(turn.session)
        if record.get("isMeta") is True and not only_results:
            yield LeftOut(INJECTED)
            return
        message = self._message()
        message.add(content, turn)
        yield from message.finished()

    def _message(self) -> Message:
        return Message(self._options, self._calls)
