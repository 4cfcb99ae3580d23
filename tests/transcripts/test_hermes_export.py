"""The reader of Hermes exports, on small ones of our own making."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hermes_database import HermesDatabase
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from reading_checks import (
    JSON_VALUES,
    bad,
    check_resumption,
    check_survives,
    damage,
    damaged,
    items_of,
    left_out,
    origins,
    said_in,
    sample_of,
    short,
    with_value_replaced,
)

from producers.transcripts.hermes import Hermes
from producers.transcripts.hermes_export import HermesExport
from producers.transcripts.port import Unreadable

CALL = {"id": "call_1", "type": "function", "function": {"name": "terminal", "arguments": '{"command":"ls"}'}}


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> HermesDatabase:
    """A compacted session, its branch, and a sub-agent of that."""
    database = HermesDatabase(tmp_path_factory.mktemp("home") / "state.db")
    database.session("a", model="m-1")
    for role, content in (("user", "yes"), ("assistant", "no"), ("user", "yes"), ("assistant", "list")):
        database.say("a", role, content)
    database.say("a", "assistant", None, tool_calls=[CALL])
    database.say("a", "tool", "README.md", tool_call_id="call_1", tool_name="terminal")
    database.compact("a", 1, 3)
    database.say(
        "a", "user", [{"type": "text", "text": "yes"}, {"type": "image_url", "image_url": {"url": "http://x"}}]
    )
    database.branch("a", "b")
    database.say("b", "user", "on the branch")
    database.session("c", source="subagent", config={"_delegate_from": "b"}, parent_session_id="b")
    database.say("c", "user", "research")
    return database


@pytest.fixture(scope="module")
def export(database: HermesDatabase, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("export") / "out.jsonl"
    database.export(path)
    return path


def test_active_turns_are_read_in_each_session_s_order(export: Path) -> None:
    items = items_of(HermesExport(), export)
    assert HermesExport().recognises(sample_of(export))
    assert short(items) == [
        ("c", "user", "prose", "research"),
        ("b", "user", "prose", "on the branch"),
        ("a", "user", "prose", "yes"),
        ("a", "assistant", "prose", "list"),
        ("a", "assistant", "tool-call", 'terminal {"command":"ls"}'),
        ("a", "tool", "tool-result", "README.md"),
        ("a", "user", "prose", "yes\n\n[image left out]"),
    ]
    assert left_out(items) == {"compaction summary": 2, "copied history": 5, "image": 1}
    assert [one.metadata.get("parent_session") for one in said_in(items)[:3]] == ["b", "a", None]


def test_an_export_has_the_origins_of_its_database(database: HermesDatabase, export: Path) -> None:
    exported = origins(items_of(HermesExport(), export))
    assert set(exported) <= set(origins(items_of(Hermes(), database.path)))
    assert len(set(exported)) == len(exported)


@pytest.mark.parametrize("order", ["abc", "bca", "cba"])
def test_a_branch_is_known_wherever_its_parent_stands(database: HermesDatabase, tmp_path: Path, order: str) -> None:
    path = tmp_path / "out.jsonl"
    database.export(path, order)
    assert sorted(short(items_of(HermesExport(), path)))[5:] == [
        ("b", "user", "prose", "on the branch"),
        ("c", "user", "prose", "research"),
    ]


def test_a_branch_without_its_parent_is_whole(database: HermesDatabase, tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    database.export(path, "b")
    assert len(said_in(items_of(HermesExport(), path))) == 6


def test_an_export_of_a_lineage_says_each_session_s_turns_once(tmp_path: Path) -> None:
    def session(name: str, *contents: str, **columns: Any) -> dict[str, Any]:
        messages = [{"id": 1, "role": "user", "content": content} for content in contents]
        return {"id": name, "source": "cli", "messages": messages, **columns}

    first, second = session("a", "one"), session("b", "two", parent_session_id="a")
    path = tmp_path / "out.jsonl"
    path.write_text(json.dumps(session("b", "one", "two", segments=[first, second])) + "\n")
    items = items_of(HermesExport(), path)
    assert short(items) == [("a", "user", "prose", "one"), ("b", "user", "prose", "two")]


def test_it_goes_on_from_every_mark(export: Path) -> None:
    assert check_resumption(HermesExport(), export) == 4


def test_a_trace_is_recognised_and_refused_with_the_reason(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    message = {"role": "user", "content": "hello"}
    line = {"uuid": "u", "sessionId": "a", "version": "hermes-agent", "type": "user", "message": message}
    path.write_text(json.dumps(line) + "\n")
    assert HermesExport().recognises(sample_of(path))
    with pytest.raises(Unreadable, match=r"--format trace.*new id"):
        items_of(HermesExport(), path)


def test_sessions_beside_a_broken_line_are_read(export: Path, tmp_path: Path) -> None:
    first, second, third = export.read_text().splitlines()
    path = tmp_path / "out.jsonl"
    lines = [first[: len(first) // 2], "", first + second, "[1]", '{"id": "x", "source": "cli"}', "\0\0" + third]
    path.write_text("\n".join(lines) + "\n")
    items = items_of(HermesExport(), path)
    assert [one.session for one in said_in(items)] == ["c", "b", *"aaaaa"]
    assert [place for place, _ in bad(items)] == ["line 1", "line 3", "line 4", "line 5", "line 6"]
    check_resumption(HermesExport(), path)


def test_other_json_lines_are_not_recognised(tmp_path: Path) -> None:
    path = tmp_path / "other.jsonl"
    path.write_text('{"messages": [{"role": "user", "content": "hi"}]}\n')
    assert not HermesExport().recognises(sample_of(path))


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changes=damage())
def test_damage_never_raises_anything_but_unreadable(export: Path, tmp_path: Path, changes: list[Any]) -> None:
    path = tmp_path / "out.jsonl"
    path.write_bytes(damaged(export.read_bytes(), changes))
    check_survives(HermesExport(), path)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(value=JSON_VALUES, choice=st.floats(0, 1, exclude_max=True), line=st.integers(0, 2))
def test_any_json_anywhere_leaves_the_other_lines_whole(
    export: Path, tmp_path: Path, value: Any, choice: float, line: int
) -> None:
    lines = export.read_text().splitlines()
    lines[line] = json.dumps(with_value_replaced(json.loads(lines[line]), lambda count: int(choice * count), value))
    path = tmp_path / "out.jsonl"
    path.write_text("\n".join(lines) + "\n")
    items = check_survives(HermesExport(), path)
    assert items is not None
    assert len({one.session for one in said_in(items)} & {"a", "b", "c"}) >= 2
