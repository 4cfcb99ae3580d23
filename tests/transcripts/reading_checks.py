"""What must hold for every reader, checked on one file: it goes on from its marks and raises only `Unreadable`. I/O."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from producers.transcripts.port import (
    SAMPLE_BYTES,
    Bad,
    Item,
    LeftOut,
    Mark,
    Reader,
    ReadOptions,
    Said,
    Sample,
    State,
    Unreadable,
)

JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=8,
)


def items_of(reader: Reader, path: Path, state: State | None = None, options: ReadOptions | None = None) -> list[Item]:
    return list(reader.read(path, options or ReadOptions(), state))


def said_in(items: Iterable[Item]) -> list[Said]:
    return [item for item in items if isinstance(item, Said)]


def short(items: Iterable[Item]) -> list[tuple[str, str, str, str]]:
    """(session, role, kind, content) of each thing said."""
    return [(one.session, one.role, one.kind, one.content) for one in said_in(items)]


def left_out(items: Iterable[Item]) -> Counter[str]:
    return Counter(item.reason for item in items if isinstance(item, LeftOut))


def bad(items: Iterable[Item]) -> list[tuple[str, str]]:
    return [(item.place, item.reason) for item in items if isinstance(item, Bad)]


def origins(items: Iterable[Item]) -> list[str]:
    return [one.origin for one in said_in(items)]


def sample_of(path: Path) -> Sample:
    with path.open("rb") as file:
        return Sample(path, file.read(SAMPLE_BYTES))


def check_resumption(reader: Reader, path: Path) -> int:
    """From each mark, what is behind it and nothing else; returns how many marks there were."""
    everything = items_of(reader, path)
    assert isinstance(everything[-1], Mark)
    marks = 0
    for position, item in enumerate(everything):
        if isinstance(item, Mark):
            marks += 1
            assert 0 <= item.done <= 1
            rest = items_of(reader, path, json.loads(json.dumps(item.state)))
            assert _without_marks(rest) == _without_marks(everything[position:])
    return marks


def check_survives(reader: Reader, path: Path) -> list[Item] | None:
    """The items; None where the file is refused as a whole. Whatever else is raised fails the test."""
    reader.recognises(sample_of(path))
    try:
        items = items_of(reader, path)
    except Unreadable:
        return None
    assert isinstance(items[-1], Mark)
    for one in said_in(items):
        assert isinstance(one.content, str)
        assert one.content.strip()
        assert one.origin
        assert one.session
        json.dumps(one.metadata)
    return items


@st.composite
def damage(draw: st.DrawFn, most: int = 4) -> list[tuple[str, float, bytes]]:
    """Some flips, cuts, duplications and insertions, each at a share of the file."""
    kinds = st.sampled_from(["flip", "cut", "double", "insert"])
    return draw(
        st.lists(st.tuples(kinds, st.floats(0, 1, exclude_max=True), st.binary(min_size=1, max_size=12)), max_size=most)
    )


def damaged(data: bytes, changes: list[tuple[str, float, bytes]]) -> bytes:
    for kind, share, piece in changes:
        at = int(share * len(data))
        if kind == "flip":
            data = data[:at] + piece + data[at + len(piece) :]
        elif kind == "cut":
            data = data[:at] + data[at + len(piece) * 7 :]
        elif kind == "double":
            data = data[:at] + data[at : at + len(piece) * 20] + data[at:]
        else:
            data = data[:at] + piece + data[at:]
    return data


def with_value_replaced(document: Any, choose: Callable[[int], int], value: Any) -> Any:
    """A copy of a JSON document in which one value, anywhere, is another; `choose` takes how many there are."""
    places = list(_places(document))
    at = places[choose(len(places))]
    copy = json.loads(json.dumps(document))
    if not at:
        return value
    holder = copy
    for key in at[:-1]:
        holder = holder[key]
    holder[at[-1]] = value
    return copy


def _places(document: Any, at: tuple[Any, ...] = ()) -> Iterable[tuple[Any, ...]]:
    yield at
    inner: Iterable[tuple[Any, Any]] = ()
    if isinstance(document, dict):
        inner = document.items()
    elif isinstance(document, list):
        inner = enumerate(document)
    for key, value in inner:
        yield from _places(value, (*at, key))


def _without_marks(items: Iterable[Item]) -> list[Item]:
    return [item for item in items if not isinstance(item, Mark)]
