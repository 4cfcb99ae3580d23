"""Lines that a crash may have damaged: each whole record is read once, each bad place is told. Does I/O."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from producers.transcripts import json_lines
from producers.transcripts.json_lines import Line, Position, Record, lines, opened, parse_line, records, share
from producers.transcripts.port import Bad

START = Position()


def read(path: Path, position: Position = START) -> list[Line]:
    with opened(path, position.offset) as file:
        return list(lines(file, position))


@pytest.mark.parametrize(
    ("line", "found", "problems"),
    [
        (b'{"a": 1}\n', [{"a": 1}], []),
        (b"\n", [], []),
        (b'\xef\xbb\xbf{"a": 1}\r\n', [{"a": 1}], []),
        (b'{"a": 1}{"b": 2}\n', [{"a": 1}, {"b": 2}], ["several records on one line"]),
        (b'{"a": "cu{"b": 2}\n', [{"b": 2}], ["not valid JSON"]),
        (b'{"a": {"x": 1}, "t": "cu{"b": 2}\n', [{"b": 2}], ["not valid JSON"]),
        (b'{"a": {"x": 1, "y": [{"z": 1}]}, "t": "cu\n', [], ["not valid JSON"]),
        (b'{"b": 2}garbage\n', [{"b": 2}], ["not valid JSON"]),
        (b"\x00 \x00\x00\n", [], ["nothing but NUL bytes"]),
        (b'\x00{"a": 1}\x00\x00\n', [{"a": 1}], ["NUL bytes dropped, the record is read"]),
        (b'\x00{"a": \n', [], ["NUL bytes dropped", "not valid JSON"]),
        (b"\x00[1]\n", [], ["NUL bytes dropped", "not a JSON object"]),
        (b"[1]\n", [], ["not a JSON object"]),
        (b"nonsense\n", [], ["not valid JSON"]),
        (b'{"a": "\\ud83d"}\n', [{"a": "\ud83d"}], []),
        (b'{"a": "\xed\xa0\xbd"}\n', [{"a": "\ud83d"}], []),
        (b'{"a": "\xff"}\n', [{"a": "\ufffd"}], []),
        (b"[" * 100_000 + b"\n", [], ["not valid JSON"]),
        (b'{"a":' * 100_000 + b"\n", [], ["not valid JSON"]),
        (b'{"a": ' + b"9" * 5000 + b"}\n", [], ["not valid JSON"]),
    ],
)
def test_what_is_whole_on_a_line_is_found_and_what_is_not_is_told(
    line: bytes, found: list[object], problems: list[str]
) -> None:
    assert parse_line(line) == (found, problems)


def test_the_caller_tells_a_record_from_a_part_of_a_cut_one() -> None:
    line = b'{"t": "cut", "m": {"t": "whole"}, "x\n'
    assert parse_line(line, lambda value: "t" in value)[0] == [{"t": "whole"}]
    assert parse_line(line, lambda value: "id" in value)[0] == []


whole_lines = st.lists(st.dictionaries(st.text(max_size=5), st.text(max_size=5), min_size=1), min_size=1, max_size=6)


@given(st.data(), whole_lines)
def test_each_whole_line_is_read_once_whatever_stands_between_the_lines(
    data: st.DataObject, values: list[dict[str, str]]
) -> None:
    numbered = [{"n": number, **value} for number, value in enumerate(values)]
    between = st.binary(max_size=30).map(lambda noise: noise.replace(b"\n", b"").replace(b"{", b""))
    content = b""
    for record in numbered:
        content += data.draw(between) + b"\n" + json.dumps(record).encode() + b"\n"
    found = [record for line in content.splitlines(keepends=True) for record in parse_line(line)[0]]
    assert [record for record in found if "n" in record] == numbered


@given(st.binary(max_size=200))
def test_no_bytes_raise(noise: bytes) -> None:
    parse_line(noise)
    parse_line(b'{"a": {"b": ' + noise + b'{"c": 1}')


def test_positions_lead_behind_each_line(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    path.write_bytes(b'{"a": 1}\n\nbad\n{"b": 2}\n')
    found = read(path)
    assert [line.number for line in found] == [1, 2, 3, 4]
    for number, line in enumerate(found):
        assert read(path, line.then) == found[number + 1 :]


@pytest.mark.parametrize(("end", "complete"), [(b'{"b": 2}', True), (b'{"b": ', False), (b'{"b"', False)])
def test_a_last_line_that_is_still_written_keeps_its_number(tmp_path: Path, end: bytes, complete: bool) -> None:
    path = tmp_path / "lines.jsonl"
    path.write_bytes(b'{"a": 1}\n' + end)
    last = read(path)[-1]
    assert (last.records == [{"b": 2}]) is complete
    path.write_bytes(b'{"a": 1}\n{"b": 2}\n{"c": 3}\n')
    rest = [(line.number, line.records) for line in read(path, last.then) if line.records]
    assert rest == ([] if complete else [(2, [{"b": 2}])]) + [(3, [{"c": 3}])]


def test_a_line_that_is_too_long_is_told_and_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_lines, "MAX_LINE_BYTES", 1 << 20)
    path = tmp_path / "lines.jsonl"
    path.write_bytes(b'{"a": "' + b"x" * (3 << 20) + b'"}\n{"b": 2}\n')
    first, second = read(path)
    assert (first.records, first.problems) == ([], ["longer than 1 MiB"])
    assert (second.number, second.records) == (2, [{"b": 2}])
    assert read(path, first.then) == [second]


def test_records_name_line_and_offset(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    path.write_bytes(b'{"a": 1}\nbad\n')
    with opened(path) as file:
        assert list(records(file, 0, 0)) == [Record({"a": 1}, 1, 9), Bad("line 2", "not valid JSON")]


def test_a_compressed_file_is_read_in_frames_and_from_every_position(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl.zst"
    compress = zstandard.ZstdCompressor().compress
    path.write_bytes(compress(b'{"a": 1}\n{"b":') + compress(b' 2}\n{"c": 3}\n'))
    found = read(path)
    assert [line.records for line in found] == [[{"a": 1}], [{"b": 2}], [{"c": 3}]]
    for number, line in enumerate(found):
        assert read(path, line.then) == found[number + 1 :]
    with opened(path) as file:
        file.read()
        assert share(file) == 1.0


def test_damage_in_a_compressed_file_is_told_behind_what_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl.zst"
    whole = zstandard.ZstdCompressor().compress(b'{"a": 1}\n')
    path.write_bytes(whole + b"no frame at all")
    first, second = read(path)
    assert first.records == [{"a": 1}]
    assert second.problems == ["the compressed data is damaged from here on"]


def test_a_compressed_file_that_was_cut_and_is_whole_later_loses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl.zst"
    values = [{"n": number, "text": hashlib.sha256(b"%d" % number).hexdigest()} for number in range(600)]
    data = "".join(json.dumps(value) + "\n" for value in values).encode()
    whole = zstandard.ZstdCompressor().compress(data[:20_000]) + zstandard.ZstdCompressor().compress(data[20_000:])
    for size in range(len(whole) // 3, len(whole), len(whole) // 20):
        path.write_bytes(whole[:size])
        cut = read(path)
        path.write_bytes(whole)
        rest = read(path, cut[-1].then)
        found = [record for line in [*cut, *rest] for record in line.records]
        assert found == values
        assert [line.problems for line in rest if line.problems] == []


@given(st.binary(max_size=100))
def test_no_compressed_bytes_raise(tmp_path_factory: pytest.TempPathFactory, noise: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "noise.jsonl.zst"
    whole = zstandard.ZstdCompressor().compress(b'{"a": 1}\n' * 20)
    path.write_bytes(whole[: len(noise) % len(whole)] + noise)
    read(path)
