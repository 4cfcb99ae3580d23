"""What every reader must hold, whatever its format; files are built by `builders.py`."""

from __future__ import annotations

import json
import tempfile
import tracemalloc
from pathlib import Path

import pytest
from builders import BUILDERS, available
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from reading import damaged, read, swapped, turns_of, with_rest

from producers.transcripts.port import Bad, Event, LeftOut, Mark, Reader, ReadOptions, Said, Unreadable
from producers.transcripts.registry import detect, read_sample, reader

FORMATS = available()
IN_JSON = [name for name in FORMATS if name not in ("hermes", "langgraph")]
"""Whose files are JSON or JSON Lines, in which a value can be swapped."""
STREAMED = [name for name in IN_JSON if name not in ("letta", "langchain")]
"""Whose records can be repeated without end."""
MAX_TRACED = 32 << 20
LARGE = 50 << 20
PADDING = b" " * (100 << 10)
"""Blanks behind each repeated record, as tracing every record of a file that is full of them takes a minute."""
OPTIONS = [ReadOptions(), ReadOptions(thinking=True, tool_results="full"), ReadOptions(tool_results="skip")]
FUZZ = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
ORIGINAL = {name: BUILDERS[name](Path(tempfile.mkdtemp(prefix="transcript-"))).read_bytes() for name in IN_JSON}


@pytest.fixture(params=FORMATS)
def built(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Reader, Path]:
    return reader(request.param), BUILDERS[request.param](tmp_path)


def test_every_reader_that_is_there_has_a_builder() -> None:
    assert set(FORMATS) <= set(BUILDERS)


def test_a_reader_bears_the_name_it_is_registered_under(built: tuple[Reader, Path]) -> None:
    assert reader(built[0].name).name == built[0].name


def test_exactly_the_right_reader_recognises_a_file(built: tuple[Reader, Path]) -> None:
    assert detect(built[1], FORMATS).name == built[0].name


@pytest.mark.parametrize("options", OPTIONS)
def test_reading_twice_gives_the_same_and_all_of_it_is_valid(built: tuple[Reader, Path], options: ReadOptions) -> None:
    one, path = built
    items = list(one.read(path, options, None))
    assert items == list(one.read(path, options, None))
    assert turns_of(items)
    for item in items:
        match item:
            case Said():
                assert item.role in ("user", "assistant", "system", "tool")
                assert item.kind in ("prose", "tool-call", "tool-result")
                assert (item.kind == "tool-result") == (item.role == "tool")
                assert item.created_at is None or item.created_at.utcoffset() is not None
                assert item.content.strip()
                assert item.session
                assert len(json.dumps(item.metadata)) < 1000
            case Mark():
                assert 0 <= item.done <= 1
            case Bad() | LeftOut() | Event():
                pass


def test_origins_are_unique_in_a_file_and_the_same_in_a_copy(built: tuple[Reader, Path], tmp_path: Path) -> None:
    one, path = built
    items = [item for item in read(one, path) if isinstance(item, Said)]
    assert len({item.origin for item in items}) == len(items)
    if not one.in_place:
        copy = tmp_path / "elsewhere" / f"copy{path.suffix}"
        copy.parent.mkdir()
        copy.write_bytes(path.read_bytes())
        assert read(one, copy) == read(one, path)


def test_reading_goes_on_behind_each_mark(built: tuple[Reader, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("producers.transcripts.json_objects.MARK_ITEMS", 1)
    one, path = built
    for state, rest in with_rest(list(one.read(path, ReadOptions(), None))):
        assert read(one, path, state=state) == rest


@pytest.mark.parametrize("name", IN_JSON)
@FUZZ
@given(data=st.data())
def test_damaged_bytes_raise_nothing_of_their_own(name: str, data: st.DataObject) -> None:
    _survives(name, data.draw(damaged(ORIGINAL[name])))


@pytest.mark.parametrize("name", IN_JSON)
@FUZZ
@given(data=st.data())
def test_anything_in_place_of_a_value_raises_nothing_of_its_own(name: str, data: st.DataObject) -> None:
    text = ORIGINAL[name].decode()
    if "\n" not in text:
        _survives(name, json.dumps(data.draw(swapped(json.loads(text)))).encode())
    else:
        records = data.draw(swapped([json.loads(line) for line in text.splitlines()]))
        whole = records if isinstance(records, list) else [records]
        _survives(name, "".join(json.dumps(record) + "\n" for record in whole).encode())


def _survives(name: str, content: bytes) -> None:
    one = reader(name)
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        file.write(content)
        file.flush()
        path = Path(file.name)
        one.recognises(read_sample(path))
        try:
            items = list(one.read(path, ReadOptions(thinking=True), None))
        except Unreadable:
            return
        for item in items:
            json.dumps(item.metadata if isinstance(item, Said) else item.state if isinstance(item, Mark) else None)


@pytest.mark.parametrize("name", STREAMED)
def test_memory_stays_bounded_in_a_large_file(name: str, tmp_path: Path) -> None:
    path = tmp_path / "large.json"
    original = ORIGINAL[name].strip()
    in_array = original.startswith(b"[")
    records = original.strip(b"[]") + PADDING + b"\n"
    repeat = LARGE // len(records)
    with path.open("wb") as file:
        file.write(b"[" if in_array else b"")
        for i in range(repeat):
            file.write((b"," if i and in_array else b"") + records)
        file.write(b"]" if in_array else b"")
    tracemalloc.start()
    try:
        count = 0
        for item in reader(name).read(path, ReadOptions(), None):
            assert not isinstance(item, Bad)
            count += 1
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert count >= repeat
    assert peak < MAX_TRACED
