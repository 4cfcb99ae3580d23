"""The reader of LangGraph's SqliteSaver, on small databases of our own making."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import msgpack
import pytest
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
)

from producers.transcripts.langgraph import LangGraph
from producers.transcripts.msgpack_values import value_of
from producers.transcripts.port import Item, Mark, State, Unreadable

_SCHEMA = """
CREATE TABLE checkpoints (
    thread_id TEXT NOT NULL, checkpoint_ns TEXT NOT NULL DEFAULT '', checkpoint_id TEXT NOT NULL,
    parent_checkpoint_id TEXT, type TEXT, checkpoint BLOB, metadata BLOB,
    PRIMARY KEY (thread_id, checkpoint_ns, checkpoint_id)
);
"""


class Saver:
    """Writes checkpoints as a SqliteSaver does."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._count = 0
        with closing(sqlite3.connect(path)) as connection:
            connection.executescript("PRAGMA journal_mode = wal;" + _SCHEMA)

    def save(self, thread: str, *messages: Any, namespace: str = "", **channels: Any) -> None:
        values = {"messages": list(messages), "__start__": {"messages": [human("pending")]}, **channels}
        self.save_raw(thread, "msgpack", msgpack.packb({"v": 4, "channel_values": values}), namespace)

    def save_raw(self, thread: str, kind: str | None, data: Any, namespace: str = "") -> None:
        self._count += 1
        with closing(sqlite3.connect(self.path)) as connection, connection:
            connection.execute(
                "INSERT INTO checkpoints VALUES (?, ?, ?, NULL, ?, ?, NULL)",
                (thread, namespace, f"1f1ec1ce-{self._count:04}", kind, data),
            )


def message(kind: str, class_name: str, /, **fields: Any) -> msgpack.ExtType:
    parts = (f"langchain_core.messages.{kind}", class_name, {"type": kind, **fields}, "model_validate_json")
    return msgpack.ExtType(5, msgpack.packb(parts))


def human(text: Any, identifier: str | None = None) -> msgpack.ExtType:
    return message("human", "HumanMessage", content=text, id=identifier)


def ai(text: Any, identifier: str | None = None, **fields: Any) -> msgpack.ExtType:
    return message("ai", "AIMessage", content=text, id=identifier, **fields)


def end_of(items: list[Item]) -> State:
    assert isinstance(items[-1], Mark)
    return items[-1].state


@pytest.fixture
def saver(tmp_path: Path) -> Saver:
    return Saver(tmp_path / "checkpoints.sqlite")


def test_the_newest_checkpoint_of_each_thread_is_read(saver: Saver) -> None:
    saver.save("one", human("a", "1"))
    saver.save("two", message("system", "SystemMessage", content="Be brief."), human("x", "9"))
    call = {"name": "f", "args": {"n": 1}, "id": "c1"}
    tool = message("tool", "ToolMessage", content="1", name="f", tool_call_id="c1", id="3")
    saver.save("one", human("a", "1"), ai("b", "2", tool_calls=[call]), tool, also=human("a", "1"))
    assert LangGraph().recognises(sample_of(saver.path))
    items = items_of(LangGraph(), saver.path)
    assert short(items) == [
        ("one", "user", "prose", "a"),
        ("one", "assistant", "prose", "b"),
        ("one", "assistant", "tool-call", 'f {"n":1}'),
        ("one", "tool", "tool-result", "1"),
        ("two", "user", "prose", "x"),
    ]
    assert left_out(items) == {"system prompt": 1}
    assert origins(items) == [
        "langgraph:one:1",
        *("langgraph:one:2", "langgraph:one:2:0"),
        "langgraph:one:3",
        "langgraph:two:9",
    ]


def test_a_graph_inside_a_graph_names_its_thread_and_shares_its_origins(saver: Saver) -> None:
    saver.save("one", human("a", "1"))
    saver.save("one", human("a", "1"), ai("inner", "2"), namespace="sub:1")
    said = said_in(items_of(LangGraph(), saver.path))
    assert [(one.session, one.origin, one.metadata) for one in said] == [
        ("one", "langgraph:one:1", {}),
        ("one/sub:1", "langgraph:one:1", {"parent_session": "one"}),
        ("one/sub:1", "langgraph:one:2", {"parent_session": "one"}),
    ]


def test_growth_is_read_alone_also_without_ids(saver: Saver) -> None:
    saver.save("one", human("yes"), ai("no"), human("yes"))
    saver.save("two", human("x"))
    before = items_of(LangGraph(), saver.path)
    saver.save("one", human("yes"), ai("no"), human("yes"), human("yes"), ai("well"))
    assert isinstance(before[-1], Mark)
    after = items_of(LangGraph(), saver.path, before[-1].state)
    assert [content for *_, content in short(after)] == ["yes", "well"]
    assert not set(origins(before)) & set(origins(after))


def test_a_database_without_the_last_checkpoint_is_read_from_its_start(saver: Saver, tmp_path: Path) -> None:
    saver.save("one", human("a"))
    end = items_of(LangGraph(), saver.path)[-1]
    assert isinstance(end, Mark)
    other = Saver(tmp_path / "other.sqlite")
    other.save("one", human("b"))
    with closing(sqlite3.connect(other.path)) as connection, connection:
        connection.execute("UPDATE checkpoints SET checkpoint_id = '1a'")
    assert len(said_in(items_of(LangGraph(), other.path, end.state))) == 1


def test_a_thread_with_older_checkpoints_that_comes_later_is_read(saver: Saver) -> None:
    saver.save("early", human("old"))
    saver.save("late", human("new"))
    row = "FROM checkpoints WHERE thread_id = 'early'"
    with closing(sqlite3.connect(saver.path)) as connection, connection:
        connection.execute(f"CREATE TABLE elsewhere AS SELECT * {row}")
        connection.execute(f"DELETE {row}")
    before = end_of(items_of(LangGraph(), saver.path))
    with closing(sqlite3.connect(saver.path)) as connection, connection:
        connection.execute("INSERT INTO checkpoints SELECT * FROM elsewhere")
    merged = items_of(LangGraph(), saver.path, before)
    assert [content for *_, content in short(merged)] == ["old", "new"]
    saver.save("late", human("new"), ai("newest"))
    grown = items_of(LangGraph(), saver.path, end_of(merged))
    assert [content for *_, content in short(grown)] == ["newest"]


def test_a_state_that_does_not_count_checkpoints_and_a_pruned_thread_begin_nothing_anew(saver: Saver) -> None:
    saver.save("one", human("a"))
    saver.save("one", human("a"), ai("b"))
    state = end_of(items_of(LangGraph(), saver.path))
    without_count = {name: value for name, value in state.items() if name != "rows"}
    with closing(sqlite3.connect(saver.path)) as connection, connection:
        connection.execute("DELETE FROM checkpoints WHERE checkpoint_id LIKE '%0001'")
    saver.save("two", human("c"))
    for known in (state, without_count):
        assert [content for *_, content in short(items_of(LangGraph(), saver.path, known))] == ["c"]


def test_it_goes_on_from_every_mark(saver: Saver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("producers.transcripts.langgraph.MARK_EVERY", 2)
    for thread in ("one", "two", "three"):
        saver.save(thread, *(human(f"{thread} {number}") for number in range(5)))
    assert check_resumption(LangGraph(), saver.path) == 10


def test_a_thread_that_cannot_be_decoded_is_told_and_the_others_are_read(saver: Saver) -> None:
    saver.save_raw("broken", "msgpack", b"\xc1")
    saver.save_raw("empty", "msgpack", msgpack.packb([]))
    saver.save_raw(
        "json", "json", json.dumps({"channel_values": {"m": [{"type": "human", "data": {"content": "old"}}]}})
    )
    saver.save_raw("pickled", "pickle", b"cos\nsystem\n(S'false'\ntR.")
    saver.save("whole", human("a"))
    items = items_of(LangGraph(), saver.path)
    assert [content for *_, content in short(items)] == ["old", "a"]
    assert bad(items) == [
        ("thread broken", "its newest checkpoint is not valid msgpack"),
        ("thread empty", "its newest checkpoint has no channels"),
        ("thread pickled", "its newest checkpoint is in a form that is not read, such as pickle"),
    ]


def test_other_databases_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE checkpoints (id INTEGER)")
    assert not LangGraph().recognises(sample_of(path))
    with pytest.raises(Unreadable, match="not a SqliteSaver"):
        items_of(LangGraph(), path)


def test_what_an_extension_names_is_never_made_and_nesting_is_bounded() -> None:
    named = msgpack.packb(msgpack.ExtType(1, msgpack.packb(("os", "system", ["false"]))))
    assert value_of(named) == ["false"]
    nested = msgpack.packb(1)
    for _ in range(2000):
        nested = msgpack.packb(msgpack.ExtType(7, nested))
    assert value_of(nested) is None
    assert value_of(msgpack.packb(msgpack.ExtType(6, b"numbers"))) is None


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database in one file."""
    saver = Saver(tmp_path_factory.mktemp("whole") / "checkpoints.sqlite")
    saver.save("one", human("a", "1"), ai("b"))
    saver.save_raw("two", "json", json.dumps({"channel_values": {}}))
    with closing(sqlite3.connect(saver.path)) as connection:
        connection.execute("PRAGMA journal_mode = delete")
    return saver.path


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changes=damage())
def test_damage_never_raises_anything_but_unreadable(whole: Path, tmp_path: Path, changes: list[Any]) -> None:
    path = tmp_path / "checkpoints.sqlite"
    path.write_bytes(damaged(whole.read_bytes(), changes))
    check_survives(LangGraph(), path)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(value=JSON_VALUES)
def test_any_value_in_a_checkpoint_leaves_the_other_thread_whole(whole: Path, value: Any) -> None:
    with closing(sqlite3.connect(whole)) as connection, connection:
        data = json.dumps({"channel_values": {"m": value}})
        connection.execute("UPDATE checkpoints SET checkpoint = ? WHERE thread_id = 'two'", (data,))
    items = check_survives(LangGraph(), whole)
    assert items is not None
    assert [one.content for one in said_in(items) if one.session == "one"] == ["a", "b"]


@settings(max_examples=100, deadline=None)
@given(data=st.binary(max_size=60), changes=damage())
def test_any_bytes_are_a_value_or_a_value_error(data: bytes, changes: list[Any]) -> None:
    for one in (data, damaged(msgpack.packb([human("a", "1"), ai([{"type": "text", "text": "b"}])]), changes)):
        with contextlib.suppress(ValueError):
            value_of(one)
