"""What the tests of readers share: reading to the end, going on from each mark, and damaging files. Does I/O."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from producers.transcripts.port import Event, Item, Mark, Reader, ReadOptions, Said, State

PLAIN = ReadOptions()
ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


def read(reader: Reader, path: Path, options: ReadOptions = PLAIN, state: State | None = None) -> list[Item]:
    """All items but the marks, of which the last item is one."""
    items = list(reader.read(path, options, state))
    assert isinstance(items[-1], Mark)
    return [item for item in items if not isinstance(item, Mark)]


def said(reader: Reader, path: Path, options: ReadOptions = PLAIN) -> list[Said]:
    return [item for item in read(reader, path, options) if isinstance(item, Said)]


def turns_of(items: list[Item]) -> list[Said | Event]:
    return [item for item in items if isinstance(item, (Said, Event))]


def with_rest(items: list[Item]) -> list[tuple[State, list[Item]]]:
    """For each mark, its state as it comes back from the catalog, and what comes behind it."""
    return [
        (json.loads(json.dumps(item.state)), [later for later in items[i:] if not isinstance(later, Mark)])
        for i, item in enumerate(items)
        if isinstance(item, Mark)
    ]


@st.composite
def damaged(draw: st.DrawFn, data: bytes) -> bytes:
    """The bytes with a few flips, cuts, duplications and insertions."""
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(data)))
        length = draw(st.integers(1, 40))
        match draw(st.sampled_from(["flip", "cut", "repeat", "insert", "end"])):
            case "flip":
                data = (
                    data[:at] + bytes(byte ^ draw(st.integers(1, 255)) for byte in data[at : at + 1]) + data[at + 1 :]
                )
            case "cut":
                data = data[:at] + data[at + length :]
            case "repeat":
                data = data[: at + length] + data[at:]
            case "insert":
                data = data[:at] + draw(st.binary(max_size=8) | st.sampled_from(_SHARP)) + data[at:]
            case _:
                data = data[:at]
    return data


_SHARP = [b'"', b"{", b"}", b"[", b"]", b"\\", b"\x00", b"\n", b"\xff", b'"\\ud800"', b"1" * 5000, b"[" * 3000, b"null"]
"""What hurts JSON most."""


@st.composite
def swapped(draw: st.DrawFn, value: Any) -> Any:
    """The JSON value with something arbitrary in place of one or two of the values in it."""
    for _ in range(draw(st.integers(1, 2))):
        places = list(_places(value, ()))
        value = _put(value, draw(st.sampled_from(places)), draw(ANY_JSON))
    return value


def _places(value: Any, path: tuple[str | int, ...]) -> Any:
    yield path
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _places(inner, (*path, name))
    elif isinstance(value, list):
        for i, inner in enumerate(value):
            yield from _places(inner, (*path, i))


def _put(value: Any, path: tuple[str | int, ...], new: Any) -> Any:
    if not path:
        return new
    name, *rest = path
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[name] = _put(value[name], tuple(rest), new)
    return copy
