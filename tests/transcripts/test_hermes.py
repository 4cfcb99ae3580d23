"""The reader of Hermes databases, on small ones of our own making."""

from __future__ import annotations

import sqlite3
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hermes_database import START, SUMMARY, HermesDatabase, talk
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from reading_checks import (
    bad,
    check_survives,
    damage,
    damaged,
    items_of,
    left_out,
    origins,
    said_in,
    sample_of,
    short,
)

from producers.transcripts import hermes
from producers.transcripts.hermes import Hermes
from producers.transcripts.port import ReadOptions, Unreadable

CALL = {"id": "call_1", "type": "function", "function": {"name": "terminal", "arguments": '{"command":"ls"}'}}
PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}


@pytest.fixture
def database(tmp_path: Path) -> HermesDatabase:
    home = tmp_path / "profiles" / "coder"
    home.mkdir(parents=True)
    return HermesDatabase(home / "state.db")


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hermes, "PAGE_ROWS", 3)


def test_prose_calls_results_pictures_and_thinking_are_told_apart(database: HermesDatabase) -> None:
    database.session("a", model="m-1", cwd="/srv", git_branch="main", title="Port")
    database.say("a", "user", "List it.", api_content="List it. <memory-context>secret recall</memory-context>")
    database.say("a", "assistant", "Sure.", tool_calls=[CALL], reasoning="think")
    database.say("a", "tool", "README.md\x00" + "x" * 3000, tool_call_id="call_1", tool_name="terminal", timestamp=5.5)
    database.say("a", "assistant", None, tool_calls=[CALL])
    database.say("a", "user", [{"type": "text", "text": "See:"}, PICTURE])
    database.say("a", "assistant", None, reasoning="only thought")
    items = items_of(Hermes(), database.path)
    said = said_in(items)
    facts = {
        "model": "m-1",
        "cwd": "/srv",
        "git_branch": "main",
        "title": "Port",
        "platform": "cli",
        "profile": "coder",
    }
    tool = {"tool": "terminal", "call_id": "call_1"}
    assert [(one.role, one.kind, one.content[:30], one.metadata) for one in said] == [
        ("user", "prose", "List it.", facts),
        ("assistant", "prose", "Sure.", facts),
        ("assistant", "tool-call", 'terminal {"command":"ls"}', facts | tool),
        ("tool", "tool-result", "README.md\x00" + "x" * 20, facts | tool),
        ("assistant", "tool-call", 'terminal {"command":"ls"}', facts | tool),
        ("user", "prose", "See:\n\n[image left out: image/p", facts),
    ]
    assert said[0].created_at == datetime.fromtimestamp(START + 60, UTC)
    assert said[3].created_at == datetime.fromtimestamp(5.5, UTC)
    assert said[3].content.endswith("[1,010 more characters left out]")
    assert left_out(items) == {"thinking": 2, "image": 1, "empty": 1}
    assert len(set(origins(items))) == len(said)


def test_thinking_is_prose_and_results_are_left_out_when_asked(database: HermesDatabase) -> None:
    database.session("a")
    database.say("a", "assistant", "Sure.", reasoning="think")
    database.say("a", "tool", "README.md", tool_call_id="call_1")
    items = items_of(Hermes(), database.path, options=ReadOptions(thinking=True, tool_results="skip"))
    assert short(items) == [("a", "assistant", "prose", "think\n\nSure.")]
    assert left_out(items) == {"tool result": 1}


def test_what_the_user_took_back_and_what_was_injected_is_left_out(database: HermesDatabase) -> None:
    database.session("a")
    talk(database, "a", "one", "two")
    row = database.say("a", "user", "typo")
    database.say("a", "assistant", "what?")
    database.rewind("a", row)
    database.say("a", "user", "three <memory-context>\nrecalled\n</memory-context>")
    database.say("a", "user", "Review the conversation above and consider saving to memory anything.")
    database.say("a", "assistant", "Nothing to save.")
    database.say("a", "system", "You are Hermes.")
    items = items_of(Hermes(), database.path)
    assert [content for *_, content in short(items)] == ["one", "two", "three "]
    assert left_out(items) == {"taken back": 2, "injected context": 3, "system prompt": 1}


@pytest.mark.parametrize("head", [0, 2])
@pytest.mark.parametrize("tail", [1, 2, 5])
def test_a_compaction_adds_no_turn_twice(database: HermesDatabase, head: int, tail: int) -> None:
    database.session("a")
    talk(database, "a", "hello", "hi", "yes", "no", "yes", "no", "yes")
    database.compact("a", head, tail)
    talk(database, "a", "yes", "fine")
    database.compact("a", head, tail)
    talk(database, "a", "yes", "done")
    items = items_of(Hermes(), database.path)
    expected = ["hello", "hi", "yes", "no", "yes", "no", "yes", "yes", "fine", "yes", "done"]
    assert [content for *_, content in short(items)] == expected
    assert left_out(items) == {"copied history": 2 * (head + tail), "compaction summary": 2}
    assert len(set(origins(items))) == len(expected)


def test_a_shortened_tool_result_in_a_compacted_tail_is_a_copy(database: HermesDatabase) -> None:
    database.session("a")
    database.say("a", "user", "go")
    database.say("a", "assistant", None, tool_calls=[CALL])
    database.say("a", "tool", "long " * 100, tool_call_id="call_1", tool_name="terminal")
    database.say("a", "assistant", "went")
    database.compact("a", 0, 3)
    database.execute("UPDATE messages SET content = '[terminal] ran ls' WHERE role = 'tool' AND active = 1")
    assert [kind for _, _, kind, _ in short(items_of(Hermes(), database.path))] == [
        *("prose", "tool-call", "tool-result", "prose"),
    ]


def test_a_session_that_continues_a_compacted_one_repeats_nothing(database: HermesDatabase) -> None:
    database.session("a", end_reason="compression")
    talk(database, "a", "hello", "hi", "how?", "so", "ok", "bye")
    database.session("b", parent_session_id="a")
    database.compact("a", 2, 2, into="b")
    talk(database, "b", "ok", "again")
    items = items_of(Hermes(), database.path)
    assert [(one.session, one.content) for one in said_in(items)[6:]] == [("b", "ok"), ("b", "again")]
    assert said_in(items)[-1].metadata["parent_session"] == "a"
    assert left_out(items) == {"copied history": 4, "compaction summary": 1}


@pytest.mark.parametrize("whole", [True, False], ids=["with tools", "texts only"])
def test_a_branch_says_only_what_is_new(database: HermesDatabase, whole: bool) -> None:
    database.session("a")
    talk(database, "a", "one", "two")
    database.say("a", "assistant", None, tool_calls=[CALL])
    database.say("a", "tool", "README.md", tool_call_id="call_1")
    database.compact("a", 1, 2)
    row = database.say("a", "user", "three")
    database.branch("a", "b", whole)
    talk(database, "b", "three", "four")
    database.rewind("a", row)
    talk(database, "a", "five")
    items = items_of(Hermes(), database.path)
    said = [(one.session, one.content) for one in said_in(items)]
    assert said[4:] == [("a", "five"), ("b", "three"), ("b", "three"), ("b", "four")]
    assert left_out(items)["copied history"] == 6


def test_a_branch_that_is_being_copied_is_still_a_copy(database: HermesDatabase) -> None:
    database.session("a")
    talk(database, "a", "one", "two", "three", "four")
    database.branch("a", "b", most=2)
    items = items_of(Hermes(), database.path)
    assert left_out(items) == {"copied history": 2}


def test_a_sub_agent_is_a_session_of_its_own_that_names_its_parent(database: HermesDatabase) -> None:
    database.session("a", end_reason="branched")
    talk(database, "a", "Research it.", "Done.")
    database.session("b", source="subagent", config={"_delegate_from": "a"}, parent_session_id="a")
    talk(database, "b", "Research it.", "Found.")
    said = said_in(items_of(Hermes(), database.path))
    assert [(one.session, one.content, one.metadata.get("parent_session")) for one in said[2:]] == [
        ("b", "Research it.", "a"),
        ("b", "Found.", "a"),
    ]


def test_an_older_database_without_the_newer_columns_is_read(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    connection = sqlite3.connect(path)
    connection.executescript(
        "CREATE TABLE sessions (id TEXT PRIMARY KEY);"
        "CREATE TABLE messages (id INTEGER PRIMARY KEY, session_id TEXT, role TEXT, content TEXT);"
        "INSERT INTO messages VALUES (1, 'a', 'user', 'hello'), (2, 'a', 'user', x'ff41'), (3, NULL, 'user', 'whose?');"
    )
    connection.close()
    assert Hermes().recognises(sample_of(path))
    assert [content for *_, content in short(items_of(Hermes(), path))] == ["hello", "\ufffdA"]


def test_broken_json_in_a_row_is_told_and_the_rest_is_read(database: HermesDatabase) -> None:
    database.session("a")
    database.execute(
        "INSERT INTO messages (session_id, role, content, timestamp) VALUES ('a', 'user', ?, 1)", "\0json:["
    )
    database.say("a", "assistant", "kept")
    database.execute("UPDATE messages SET tool_calls = '[{' WHERE id = 2")
    items = items_of(Hermes(), database.path)
    assert [content for *_, content in short(items)] == ["kept"]
    assert bad(items) == [
        ("messages row 1", "its content is not valid JSON"),
        ("messages row 2", "its tool calls are not valid JSON"),
    ]


def test_other_databases_are_not_recognised_and_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE messages (id INTEGER)")
    connection.close()
    assert not Hermes().recognises(sample_of(path))
    with pytest.raises(Unreadable, match="not a Hermes database"):
        items_of(Hermes(), path)
    path.write_bytes(b"SQLite format 3\x00 and no more")
    with pytest.raises(Unreadable, match="damaged"):
        items_of(Hermes(), path)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database in one file, with a compaction, a branch and tools."""
    database = HermesDatabase(tmp_path_factory.mktemp("whole") / "state.db")
    database.session("a")
    talk(database, "a", *(f"turn {number} " + "word " * 80 for number in range(30)))
    database.say("a", "assistant", None, tool_calls=[CALL])
    database.compact("a", 2, 3, SUMMARY)
    database.branch("a", "b")
    talk(database, "b", *(f"new {number}" for number in range(10)))
    database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    database.execute("PRAGMA journal_mode = delete")
    return database.path


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changes=damage())
def test_damage_never_raises_anything_but_unreadable(whole: Path, tmp_path: Path, changes: list) -> None:
    path = tmp_path / "state.db"
    path.write_bytes(damaged(whole.read_bytes(), changes))
    check_survives(Hermes(), path)


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(row=st.integers(1, 25))
def test_rows_beside_a_damaged_page_are_read(whole: Path, tmp_path: Path, row: int) -> None:
    path = tmp_path / "state.db"
    data = whole.read_bytes()
    page = data.index(f"turn {row} word".encode()) // 4096 * 4096
    path.write_bytes(data[:page] + b"\xff" * 4096 + data[page + 4096 :])
    items = check_survives(Hermes(), path) or []
    assert {reason for _, reason in bad(items)} == {"the database is damaged there"}
    assert len(said_in(items)) + len(bad(items)) >= 40
    assert len(said_in(items)) >= 25
