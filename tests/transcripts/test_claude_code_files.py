"""Claude Code's files as they are read: from every mark, while they grow, damaged. Does I/O."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from producers.transcripts import claude_code, line_reading
from producers.transcripts.claude_code import ClaudeCodeReader
from producers.transcripts.port import Mark
from transcripts.claude_code_generator import Generator
from transcripts.claude_code_records import SESSION, Writer, call, text, thinking
from transcripts.reader_checks import (
    assert_grows_without_loss,
    assert_resumes_from_every_mark,
    assert_survives,
    bad,
    damage,
    dump,
    other_value,
    read,
    said,
    turns,
)

READER = ClaudeCodeReader()
fuzzed = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def records() -> list[dict[str, object]]:
    """Texts that stand once, most on messages of one line; two sessions, a side chain, a sub-agent."""
    a, b = Writer(), Writer("22222222-2222-4222-8222-222222222222")
    side, agent = Writer(begin=100, isSidechain=True), Writer(begin=200, isSidechain=True, agentId="x1")
    return [
        a.user("alpha"), a.assistant("m1", thinking(), text("beta")), b.user("gamma"), a.assistant("m1", call("c1")),
        side.user("delta"), b.assistant("m2", text("epsilon"), call("c2", "Read")), agent.user("zeta"),
        side.assistant("m3", text("eta")), a.result("c1", "theta"), a.record("progress", data={}),
        b.result("c2", "iota"), agent.assistant("m4", text("kappa")), side.user("lambda"),
        {"type": "custom-title", "customTitle": "T", "sessionId": SESSION},
        a.assistant("m1", text("mu")), a.user("nu"), b.user("xi"), agent.user("omicron"),
    ]  # fmt: skip


LINES = [dump([record]) for record in records()]
SAID = [
    ["alpha"], ["beta"], ["gamma"], ["Bash {}"], ["delta"], ["epsilon", "Read {}"], ["zeta"], ["eta"], ["theta"], [],
    ["iota"], ["kappa"], ["lambda"], [], ["mu"], ["nu"], ["xi"], ["omicron"],
]  # fmt: skip
"""Line by line."""


@pytest.fixture
def each_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mark behind each line."""
    monkeypatch.setattr(line_reading, "LINES_PER_MARK", 1)


@pytest.mark.usefixtures("each_line")
def test_reading_goes_on_from_every_mark(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"".join(LINES))
    assert_resumes_from_every_mark(READER, path)
    assert sum(isinstance(item, Mark) for item in read(READER, path)) == len(LINES) + 1


@pytest.mark.usefixtures("each_line")
def test_reading_goes_on_while_messages_are_given_up_for_age_and_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"".join(LINES))
    monkeypatch.setattr(claude_code, "AGE_CHECK_LINES", 1)
    whole = sorted(one.content for one in said(read(READER, path)))
    for name, limit in (("HELD_LINES", 2), ("HELD_CHARS", 9)):
        monkeypatch.setattr(claude_code, name, limit)
        assert_resumes_from_every_mark(READER, path)
        given_up = said(read(READER, path))
        assert sorted("\n\n".join(one.content for one in given_up).split("\n\n")) == sorted(
            "\n\n".join(whole).split("\n\n")
        )
        assert len({one.origin for one in given_up}) == len(given_up)


def test_a_file_that_grows_says_everything_and_nothing_twice(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    grown = assert_grows_without_loss(READER, path, LINES)
    words = sorted("\n\n".join(turn.content for turn in turns(grown)).split("\n\n"))
    whole = read(READER, path)
    assert words == sorted("\n\n".join(turn.content for turn in turns(whole)).split("\n\n"))
    origins = [one.origin for one in grown]
    assert len(set(origins)) == len(origins)
    assert {one.origin for one in said(whole)} <= set(origins)


@fuzzed
@given(damage(LINES))
def test_damage_takes_no_more_than_the_lines_it_touches(tmp_path: Path, damaged: tuple[bytes, set[int]]) -> None:
    data, touched = damaged
    path = tmp_path / "a.jsonl"
    path.write_bytes(data)
    found = "\n\n".join(one.content for one in said(assert_survives(READER, path)))
    untouched = [content for number, contents in enumerate(SAID, 1) if number not in touched for content in contents]
    assert [content for content in untouched if content not in found] == []


@fuzzed
@given(other_value(records()))
def test_any_json_in_place_of_any_value_is_read(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(data)
    assert_survives(READER, path)


@fuzzed
@given(st.binary(max_size=300))
def test_no_bytes_raise(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(data)
    assert_survives(READER, path)


def test_stubs_nul_bytes_and_cut_ends_are_told_and_the_rest_is_read(tmp_path: Path) -> None:
    w = Writer()
    first, second, third = (dump([w.user(word)]) for word in ("one", "two \ud83d", "three"))
    path = tmp_path / "a.jsonl"
    path.write_bytes(first[:60] + first + b"\x00" * 64 + b"\n\n" + second[:-1] + b"\x00" * 8 + b"\n" + third[:-20])
    items = read(READER, path)
    assert [turn.content for turn in turns(items)] == ["one", "two \ud83d"]
    assert bad(items) == [
        ("line 1", "not valid JSON"),
        ("line 2", "nothing but NUL bytes"),
        ("line 4", "NUL bytes dropped, the record is read"),
        ("line 5", "not valid JSON"),
    ]


def test_a_generated_file_holds_what_its_generator_counts(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    expected = Generator(seed=7, sessions=5).write(path, 300_000)
    found = said(read(READER, path))
    counts = {kind: sum(one.kind == kind for one in found) for kind in expected.kinds}
    assert counts == dict(expected.kinds)
    assert len({one.session for one in found}) == expected.sessions
    assert len({one.origin for one in found}) == len(found)
