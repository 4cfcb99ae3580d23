"""Detection: one reader for each file, by its content, or the reason why there is none."""

from __future__ import annotations

import importlib
import json
import shutil
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

import pytest
import zstandard
from builders import BUILDERS, available, conversation, node
from hypothesis import given
from hypothesis import strategies as st
from reading import damaged

from producers.transcripts.port import SAMPLE_BYTES, ReadOptions, Sample, UnknownFormat, Unreadable
from producers.transcripts.registry import READERS, detect, read_sample, reader

FORMATS = available()
LONG_LINE = zstandard.compress(b'{"type": "' + Random(1).randbytes(4 * SAMPLE_BYTES).hex().encode() + b'"}\n')


def why_not(path: Path, formats: Sequence[str] = FORMATS) -> str:
    """The reason why a file that is in a format that is known cannot be imported."""
    with pytest.raises(Unreadable) as caught:
        detect(path, formats)
    assert not isinstance(caught.value, UnknownFormat)
    return str(caught.value)


def pretty(value: Any, indent: int | None) -> str:
    return json.dumps(value, indent=indent)


TALK = conversation("t", [node("m", None, "user", "x" * 2 * SAMPLE_BYTES)])
CASES: list[tuple[str, Any]] = [
    ("chatgpt", [TALK]),
    ("chatgpt", TALK),
    ("chatgpt", dict(sorted(TALK.items()))),
    ("sharegpt", [{"id": "a", "conversations": [{"from": "human", "value": "x" * 2 * SAMPLE_BYTES}]}]),
    ("sharegpt", {"conversations": [{"role": "user", "content": "x"}]}),
    ("openai", {"model": "m", "messages": [{"role": "system", "content": "x" * 2 * SAMPLE_BYTES}]}),
    ("openai", [{"messages": [{"role": "user", "content": "x"}]}]),
    ("openai", {"request": {"body": {"messages": [{"role": "user", "content": "x"}]}}}),
    ("turns", {"session_id": "s", "turn_index": 0, "role": "user", "content": "x"}),
]


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize(("name", "value"), CASES)
def test_a_file_is_recognised_by_its_names_however_long_or_spaced(
    tmp_path: Path, name: str, value: Any, indent: int | None
) -> None:
    path = tmp_path / "file"
    path.write_text(pretty(value, indent))
    assert detect(path, FORMATS).name == name


@pytest.mark.parametrize("name", FORMATS)
def test_the_name_of_a_file_does_not_matter(tmp_path: Path, name: str) -> None:
    path = BUILDERS[name](tmp_path)
    assert detect(Path(shutil.move(path, tmp_path / "no-name")), FORMATS).name == name


@pytest.mark.parametrize("name", ["sharegpt", "openai", "turns"])
def test_a_broken_first_line_does_not_hide_the_format(tmp_path: Path, name: str) -> None:
    path = BUILDERS[name](tmp_path)
    path.write_bytes(b'\x00\x00{"cut": "off\n' + path.read_bytes())
    assert detect(path, FORMATS).name == name


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "is empty"),
        (b"\x00 \n", "holds nothing"),
        (b"PK\x03\x04rest", "is a ZIP archive; unpack it"),
        (b"\x1f\x8brest", "is gzipped; unpack it"),
        (b"plain text", "name it with --format"),
        (b'{"name": "package", "version": "1"}', "name it with --format"),
        (b'[{"id": "u", "title": "shared"}]', "name it with --format"),
        (b'{"mapping": {"properties": {}}}', "name it with --format"),
    ],
)
def test_a_file_of_no_format_is_refused_with_the_reason(tmp_path: Path, content: bytes, reason: str) -> None:
    path = tmp_path / "file.json"
    path.write_bytes(content)
    with pytest.raises(UnknownFormat, match=reason):
        detect(path, FORMATS)


def test_a_healthy_database_of_another_program_is_in_no_format(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE messages (id INTEGER)")
    with pytest.raises(UnknownFormat, match="name it with --format"):
        detect(path, FORMATS)


@pytest.mark.parametrize("content", [b"and no more", b"\x10\x00" + b"\xff" * 5000])
def test_a_database_that_cannot_be_read_as_one_is_told_as_damaged(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "state.db"
    path.write_bytes(b"SQLite format 3\x00" + content)
    assert why_not(path).startswith("the database is damaged or not whole; recover it (`sqlite3 FILE .recover`)")


@pytest.mark.parametrize(
    "content",
    [LONG_LINE[:20], LONG_LINE[: len(LONG_LINE) // 2], b"no frame at all"],
    ids=["cut early", "cut in a line longer than the sample", "no frame"],
)
def test_compressed_data_that_is_damaged_or_cut_is_told_as_that(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "rollout.jsonl.zst"
    path.write_bytes(content)
    assert why_not(path).startswith("the compressed data is damaged or cut short")


@pytest.mark.parametrize(("content", "reason"), [(b"", "is empty"), (b" \n", "holds nothing"), (b"{}", "in no format")])
def test_compressed_data_that_is_whole_and_none_of_ours_is_in_no_format(
    tmp_path: Path, content: bytes, reason: str
) -> None:
    path = tmp_path / "notes.jsonl.zst"
    path.write_bytes(zstandard.compress(content))
    with pytest.raises(UnknownFormat, match=reason):
        detect(path, FORMATS)


@pytest.mark.parametrize("name", ["hermes", "langgraph"])
def test_a_format_that_is_a_database_says_that_a_file_is_none(tmp_path: Path, name: str) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text("{}\n")
    with pytest.raises(Unreadable, match=r"is no SQLite database; .*--format"):
        list(reader(name).read(path, ReadOptions(), None))


def test_what_was_tried_is_named_when_no_reader_knows_the_file(tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    path.write_text("{}")
    with pytest.raises(Unreadable) as caught:
        detect(path, FORMATS)
    assert all(name in str(caught.value) for name in FORMATS)


def test_several_claims_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = importlib.import_module("producers.transcripts.turns")
    monkeypatch.setattr(module.Turns, "recognises", lambda self, sample: True)
    reason = why_not(BUILDERS["openai"](tmp_path), ["openai", "turns"])
    assert reason == "could be openai or turns; name one with --format"


def test_an_unknown_format_is_refused_and_the_known_ones_named() -> None:
    with pytest.raises(Unreadable, match=r"unknown format 'nonsense'; the formats are hermes, .*turns"):
        reader("nonsense")


def test_each_format_is_a_class_of_a_module_of_its_own() -> None:
    assert len(set(READERS.values())) == len(READERS)
    assert all(where.startswith(f"producers.transcripts.{name.replace('-', '_')}:") for name, where in READERS.items())


@pytest.mark.parametrize("name", ["chatgpt", "sharegpt", "openai", "turns"])
@given(data=st.data())
def test_recognising_never_raises(tmp_path_factory: pytest.TempPathFactory, name: str, data: st.DataObject) -> None:
    build: Callable[[Path], Path] = BUILDERS[name]
    head = read_sample(build(tmp_path_factory.getbasetemp())).head
    sample = Sample(Path("file"), data.draw(damaged(head) | st.binary()))
    for other in FORMATS:
        assert reader(other).recognises(sample) in (True, False)


@pytest.mark.parametrize("name", ["claude-code", "codex", "pi", "turns"])
def test_a_first_line_longer_than_the_sample_hides_nothing(tmp_path: Path, name: str) -> None:
    whole = BUILDERS[name](tmp_path)
    long = tmp_path / f"long-{whole.name}"
    long.write_bytes(b'{"type":"' + b"x" * 2 * SAMPLE_BYTES + b'"}\n' + whole.read_bytes())
    assert detect(long).name == name
