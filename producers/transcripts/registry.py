"""The readers by name, and which of them a file is for. Does I/O."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from pathlib import Path

from producers.transcripts import databases
from producers.transcripts.json_lines import MAX_LINE_BYTES, is_damaged, opened
from producers.transcripts.port import SAMPLE_BYTES, Reader, Sample, UnknownFormat, Unreadable

READERS = {
    "hermes": "producers.transcripts.hermes:Hermes",
    "hermes-export": "producers.transcripts.hermes_export:HermesExport",
    "claude-code": "producers.transcripts.claude_code:ClaudeCodeReader",
    "codex": "producers.transcripts.codex:CodexReader",
    "pi": "producers.transcripts.pi:PiReader",
    "chatgpt": "producers.transcripts.chatgpt:ChatGPT",
    "sharegpt": "producers.transcripts.sharegpt:ShareGPT",
    "openai": "producers.transcripts.openai:OpenAI",
    "letta": "producers.transcripts.letta:Letta",
    "langchain": "producers.transcripts.langchain:LangChain",
    "langgraph": "producers.transcripts.langgraph:LangGraph",
    "turns": "producers.transcripts.turns:Turns",
}
"""Name of a format → module:class; imported only when it is asked for."""
_STEP_BYTES = 1 << 20
_PACKED = {b"PK\x03\x04": "a ZIP archive", b"\x1f\x8b": "gzipped"}


def reader(name: str) -> Reader:
    """The reader of a format. Raises `Unreadable` for a name that is none."""
    if name not in READERS:
        raise Unreadable(f"unknown format {name!r}; the formats are {', '.join(READERS)}")
    module, _, attribute = READERS[name].partition(":")
    found: Reader = getattr(import_module(module), attribute)()
    return found


def read_sample(path: Path) -> Sample:
    """The beginning of a file. Raises `OSError`."""
    with opened(path) as file:
        return Sample(path, file.read(SAMPLE_BYTES))


def _behind_the_first_line(path: Path, sample: Sample) -> Sample | None:
    """What follows a first line that is longer than a sample; None where there is no such line."""
    if b"\n" in sample.head or len(sample.head) < SAMPLE_BYTES:
        return None
    with opened(path) as file:
        for _ in range(MAX_LINE_BYTES // _STEP_BYTES + 1):
            if file.readline(_STEP_BYTES).endswith(b"\n"):
                return Sample(path, file.read(SAMPLE_BYTES))
    return None


def detect(path: Path, formats: Iterable[str] = READERS) -> Reader:
    """The reader that recognises the file.

    Raises `UnknownFormat` when it is in none, plain `Unreadable` when several claim it or damage hides what it is, and
    `OSError`.
    """
    names = list(formats)
    sample = read_sample(path)
    if not sample.head.strip(b"\x00 \t\r\n"):
        raise _refusal(sample, "holds nothing" if sample.head else "is empty")
    for magic, what in _PACKED.items():
        if sample.head.startswith(magic):
            raise UnknownFormat(f"is {what}; unpack it and import what is inside")
    claims = [one for one in map(reader, names) if one.recognises(sample)]
    if not claims and (behind := _behind_the_first_line(path, sample)):
        claims = [one for one in map(reader, names) if one.recognises(behind)]
    if len(claims) == 1:
        return claims[0]
    if claims:
        raise Unreadable(f"could be {' or '.join(one.name for one in claims)}; name one with --format")
    known = ", ".join(names)
    raise _refusal(sample, f"is in no format that is known ({known}); if it is one of them, name it with --format")


def _refusal(sample: Sample, reason: str) -> Unreadable:
    """Why no reader takes the file: damage that hides what it is, else `reason`."""
    if _breaks_off(sample.path):
        return Unreadable("the compressed data is damaged or cut short; copy the file again, or compress it again")
    if databases.is_database(sample):
        try:
            with databases.opened(sample.path):
                pass
        except Unreadable as error:
            return error
    return UnknownFormat(reason)


def _breaks_off(path: Path) -> bool:
    """Whether compressed data is damaged as far as detection looks."""
    if path.suffix != ".zst":
        return False
    with opened(path) as file:
        for _ in range(MAX_LINE_BYTES // _STEP_BYTES + 1):
            if not file.read(_STEP_BYTES):
                break
        return is_damaged(file)
