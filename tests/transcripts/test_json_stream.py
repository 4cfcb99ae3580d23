"""Objects out of a JSON text of any size, whole or damaged."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reading import ANY_JSON

from producers.transcripts import json_stream
from producers.transcripts.json_stream import Element, elements
from producers.transcripts.port import Bad

GOOD: dict[str, Any] = {"kind": "record", "text": 'a "quoted" {"kind": 1} \\ text', "list": [{"kind": "inner"}, []]}


def found(data: bytes, number: int = 0) -> list[Any]:
    """Values, and the reasons of what is bad."""
    parts = elements(io.BytesIO(data), number, lambda value: value.get("kind") == "record")
    return [part.value if isinstance(part, Element) else part.reason for part in parts]


def record(i: int) -> dict[str, Any]:
    return GOOD | {"i": i}


def array(*parts: str | dict[str, Any]) -> bytes:
    return f"[{', '.join(part if isinstance(part, str) else json.dumps(part) for part in parts)}]".encode()


@pytest.mark.parametrize("window", [16, 64, 1000])
@pytest.mark.parametrize("ascii_only", [True, False])
@given(values=st.lists(st.dictionaries(st.text(max_size=5), ANY_JSON, max_size=4), max_size=4))
@settings(max_examples=40, deadline=None)
def test_an_array_gives_its_objects_and_goes_on_behind_each(
    window: int, ascii_only: bool, values: list[dict[str, Any]]
) -> None:
    text = json.dumps(values, ensure_ascii=ascii_only, indent=1)
    data = text.encode("utf-8", "replace" if ascii_only else "surrogateescape")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_stream, "_WINDOW", window)
        all_of_it = list(elements(io.BytesIO(data), 0, bool))
        assert [repr(one.value) for one in all_of_it if isinstance(one, Element)] == [repr(value) for value in values]
        for i, one in enumerate(all_of_it):
            assert isinstance(one, Element)
            file = io.BytesIO(data)
            file.seek(one.end)
            assert repr(list(elements(file, one.number, bool))) == repr(all_of_it[i + 1 :])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        (" \n\x00 ", []),
        ("[]", []),
        ("[1, 2, 3]", ["not a JSON object"]),
        ('"text"', ["not a JSON object"]),
        (json.dumps(record(1)), [record(1)]),
        ("\ufeff[" + json.dumps(record(1)) + "]", [record(1)]),
        (json.dumps(record(1)) + "\n" + json.dumps(record(2)), [record(1), record(2)]),
    ],
)
def test_other_shapes_than_an_array_are_read_or_told(text: str, expected: list[Any]) -> None:
    assert found(text.encode()) == expected


BROKEN = json.dumps(record(2))


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        (BROKEN[:-1], "not valid JSON"),  # the next record stands where a key should
        (BROKEN[1:], "not a JSON object"),
        (BROKEN.replace('"text"', '"text', 1), "not valid JSON"),
        (BROKEN.replace("[", "", 1), "not valid JSON"),
        (BROKEN.replace("]", "", 1), "not valid JSON"),
        (BROKEN[:3] + "\x00\x00" + BROKEN[12:], "not valid JSON"),
        ("[" + BROKEN[:40], "not valid JSON"),
        (BROKEN.replace('"i": 2', '"i": ' + "2" * 5000), "holds a number too long to read"),
        (BROKEN.replace('"i": 2', '"i": ' + "[" * 5000 + "]" * 5000), "nested too deeply"),
        ("null", "not a JSON object"),
    ],
)
def test_records_around_a_broken_one_are_read_and_it_is_told_once(broken: str, reason: str) -> None:
    assert found(array(record(1), broken, record(3), record(4))) == [record(1), reason, record(3), record(4)]


def test_a_cut_off_array_gives_what_is_whole() -> None:
    data = array(record(1), record(2))
    assert found(data[:-30]) == [record(1), "cut off"]


def test_an_object_over_the_limit_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_stream, "_WINDOW", 1 << 10)
    monkeypatch.setattr(json_stream, "MAX_OBJECT_CHARS", 1 << 20)
    large = record(2) | {"list": [{"kind": "inner", "text": "x" * 1000}] * 3000}
    assert found(array(record(1), large, record(3))) == [record(1), "longer than 1 Mi characters", record(3)]


def test_the_place_of_damage_is_named() -> None:
    data = array(record(1), "{broken", record(3))
    bad = [part for part in elements(io.BytesIO(data), 0, bool) if isinstance(part, Bad)]
    assert bad == [Bad(f"record 2, from byte {data.index(b'{broken'):,}", "not valid JSON")]


@pytest.mark.parametrize("pattern", ["[", '{"a":', '[{"a":', '{"a":[', '{"', "{", '"', '{"a":"'])
def test_a_megabyte_of_openings_ends(pattern: str) -> None:
    assert len(found((pattern * (1_000_000 // len(pattern))).encode())) <= 1
