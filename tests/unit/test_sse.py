"""Server-sent events are the same however their bytes are cut."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from query.agent import sse
from query.agent.sse import SseReader

LINES = st.sampled_from(
    ["data: a", "data:b", "data", "data: 记住了🦓", ": alive", "event: x", "id: 7", "", "data:  two ", "nonsense"]
)
ENDS = st.sampled_from(["\n", "\r\n", "\r"])


def read(data: bytes, cuts: list[int]) -> list[str]:
    reader = SseReader()
    places = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    parts = [data[start:end] for start, end in itertools.pairwise(places)]
    return [event for part in parts for event in reader.feed(part)] + reader.close()


@pytest.mark.parametrize(
    ("data", "events"),
    [
        (b"data: one\n\ndata: two\n\n", ["one", "two"]),
        (b"data:one\r\n\r\n: keep alive\r\n\r\ndata: two\r\n\r\n", ["one", "two"]),
        (b"data: one\r\rdata: two\r\r", ["one", "two"]),
        (b"\xef\xbb\xbfdata: behind a byte order mark\n\n", ["behind a byte order mark"]),
        (b"data: a\ndata: b\n\n", ["a\nb"]),
        (b"event: message\nid: 1\nretry: 10\ndata: x\n\n", ["x"]),
        (b"data\n\n", [""]),
        (b"data:  two spaces\n\n", [" two spaces"]),
        (b"data: no empty line at the end", ["no empty line at the end"]),
        (b"data: cut short\r", ["cut short"]),
        (b"data: bad \xff byte\n\n", ["bad \ufffd byte"]),
        ("data: a\u2028b\x85c\n\n".encode(), ["a\u2028b\x85c"]),
        (b"", []),
        (b"\n\n\n", []),
        (b"<html>\n", []),
    ],
)
def test_an_event_is_read_as_the_standard_says_and_servers_write(data: bytes, events: list[str]) -> None:
    assert read(data, []) == events
    assert read(data, list(range(len(data)))) == events, "byte by byte"


@given(st.lists(st.tuples(LINES, ENDS), max_size=12), st.lists(st.integers(0, 400), max_size=20))
def test_any_cut_gives_the_same_events(lines: list[tuple[str, str]], cuts: list[int]) -> None:
    data = "".join(line + end for line, end in lines).encode()
    assert read(data, cuts) == read(data, [])


@given(st.binary(max_size=200), st.lists(st.integers(0, 200), max_size=10))
def test_bytes_that_are_no_events_do_no_harm(data: bytes, cuts: list[int]) -> None:
    assert read(data, cuts) == read(data, [])


def test_an_event_without_an_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "LARGEST_EVENT", 100)
    for endless in (b"data: " + b"x" * 200, b"data: x\n" * 200):
        with pytest.raises(ValueError, match="more than 100 characters"):
            SseReader().feed(endless)
