"""What must hold for every reader of a JSON Lines format, and the ways to damage a file. Does I/O."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from hypothesis import strategies as st

from producers.transcripts.port import Bad, Item, LeftOut, Mark, Reader, ReadOptions, Said, State, Unreadable

MAX_ITEMS_PER_BYTE = 1.0
"""A reader that says more than that of a damaged file repeats itself."""

any_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


class Turn(NamedTuple):
    """What a test expects of a turn."""

    session: str
    role: str
    kind: str
    content: str
    time: str | None = None


def dump(records: Iterable[dict[str, Any]]) -> bytes:
    """The records as lines."""
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


def read(reader: Reader, path: Path, options: ReadOptions | None = None, state: State | None = None) -> list[Item]:
    return list(reader.read(path, options or ReadOptions(), state))


def said(items: Iterable[Item]) -> list[Said]:
    return [item for item in items if isinstance(item, Said)]


def turns(items: Iterable[Item]) -> list[Turn]:
    """The turns without what varies in place and origin."""
    return [
        Turn(one.session, one.role, one.kind, one.content, one.created_at and one.created_at.strftime("%H:%M:%S"))
        for one in said(items)
    ]


def left_out(items: Iterable[Item]) -> list[str]:
    return sorted(item.reason for item in items if isinstance(item, LeftOut))


def bad(items: Iterable[Item]) -> list[tuple[str, str]]:
    return [(item.place, item.reason) for item in items if isinstance(item, Bad)]


def assert_resumes_from_every_mark(reader: Reader, path: Path) -> None:
    """From each mark, read exactly what comes behind it; the marks are JSON and the last one is at the end."""
    items = read(reader, path)
    marks = [number for number, item in enumerate(items) if isinstance(item, Mark)]
    assert marks, "no mark"
    assert marks[-1] == len(items) - 1
    for number in marks:
        mark = items[number]
        assert isinstance(mark, Mark)
        assert 0.0 <= mark.done <= 1.0
        again = read(reader, path, state=json.loads(json.dumps(mark.state)))
        assert _without_marks(again) == _without_marks(items[number:])


def assert_grows_without_loss(reader: Reader, path: Path, lines: Sequence[bytes]) -> list[Said]:
    """A file that is read after each half line that is written to it says everything; returns what it said."""
    state: State | None = None
    everything: list[Said] = []
    path.write_bytes(b"")
    for line in lines:
        for part in (line[: len(line) // 2], line[len(line) // 2 :]):
            with path.open("ab") as file:
                file.write(part)
            items = read(reader, path, state=state)
            everything += said(items)
            last = items[-1]
            assert isinstance(last, Mark)
            state = last.state
    return everything


def assert_survives(reader: Reader, path: Path) -> list[Item]:
    """Whatever the file holds, only `Unreadable` is raised, and the items are bounded by its size."""
    items: list[Item] = []
    try:
        for item in reader.read(path, ReadOptions(thinking=True), None):
            items.append(item)
            assert len(items) <= path.stat().st_size * MAX_ITEMS_PER_BYTE + 2
    except Unreadable:
        return []
    return items


@st.composite
def damage(draw: st.DrawFn, lines: Sequence[bytes]) -> tuple[bytes, set[int]]:
    """A file with one place cut, overwritten, doubled or inserted into; and the numbers of the lines it touched."""
    data = b"".join(lines)
    start = draw(st.integers(0, len(data) - 1))
    end = min(len(data), start + draw(st.integers(1, 60)))
    new = draw(
        st.sampled_from([b"", b"\x00" * 16, b"\n", b'"', b'{"', b"}", b"\xff\xfe", data[start:end] * 2])
        | st.binary(max_size=12)
    )
    if draw(st.booleans()):
        end = start  # an insertion
    touched, offset = set(), 0
    for number, line in enumerate(lines, 1):
        if offset <= end and start <= offset + len(line):
            touched.add(number)
        offset += len(line)
    return data[:start] + new + data[end:], touched


@st.composite
def other_value(draw: st.DrawFn, records: Sequence[dict[str, Any]]) -> bytes:
    """A file in which one value of one record is some other JSON."""
    copies = json.loads(json.dumps(records))
    target: Any = draw(st.sampled_from(copies))
    while True:
        keys = sorted(target) if isinstance(target, dict) else list(range(len(target)))
        key = draw(st.sampled_from(keys))
        inner = target[key]
        if not isinstance(inner, (dict, list)) or not inner or draw(st.booleans()):
            target[key] = draw(any_json)
            return dump(copies)
        target = inner


def _without_marks(items: Iterable[Item]) -> list[Item]:
    return [item for item in items if not isinstance(item, Mark)]
