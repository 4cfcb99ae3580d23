"""The reader of Letta agent files, on small ones of our own making."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

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
    with_value_replaced,
)

from producers.transcripts.letta import Letta
from producers.transcripts.port import ReadOptions, Unreadable


def text(*words: str) -> list[dict[str, Any]]:
    return [{"type": "text", "text": word} for word in words]


def call(identifier: str, name: str, **arguments: Any) -> dict[str, Any]:
    return {"id": identifier, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}


def event(kind: str, message: str) -> list[dict[str, Any]]:
    return text(json.dumps({"type": kind, "message": message, "time": "now"}))


MESSAGES: list[dict[str, Any]] = [
    {"role": "system", "content": text("You are Loop.")},
    {
        "role": "assistant",
        "content": text("First boot."),
        "tool_calls": [call("r1", "send_message", message="Hello.\nYes?")],
    },
    {"role": "tool", "content": text('{"status": "OK"}'), "tool_call_id": "r1", "name": "send_message"},
    {"role": "user", "content": event("login", "the user came")},
    {"role": "user", "content": event("user_message", "Which port?"), "name": "ann"},
    {
        "role": "assistant",
        "content": [{"type": "reasoning", "reasoning": "look it up"}],
        "tool_calls": [call("c1", "archival_memory_search", query="port")],
    },
    {"role": "tool", "content": text("[]"), "tool_call_id": "c1", "name": "archival_memory_search"},
    {"role": "user", "content": event("heartbeat", "go on")},
    {"role": "assistant", "content": [], "tool_calls": [call("r2", "send_message", message="8443.")]},
    {
        "role": "user",
        "content": [*text("And here?"), {"type": "image", "source": {"media_type": "image/png", "data": "aa"}}],
    },
    {"role": "assistant", "content": text("The same.")},
    {"role": "assistant", "content": [], "tool_calls": None},
]


def agent_file(messages: list[dict[str, Any]] = MESSAGES, kind: str = "memgpt_agent") -> dict[str, Any]:
    timed = [
        {"id": f"message-{number}", "created_at": f"2026-01-22T02:06:{number:02}.5+00:00", **message}
        for number, message in enumerate(messages)
    ]
    agent = {"name": "Loop", "agent_type": kind, "llm_config": {"model": "m-1"}, "messages": timed, "tools": []}
    return {"agents": [agent], "groups": [], "blocks": []}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "loop.af"


def write(path: Path, document: Any) -> Path:
    path.write_text(json.dumps(document))
    return path


def test_replies_of_send_message_are_prose_and_events_are_left_out(path: Path) -> None:
    write(path, agent_file())
    assert Letta().recognises(sample_of(path))
    items = items_of(Letta(), path)
    assert [kinds for _, *kinds in short(items)] == [
        ["assistant", "prose", "Hello.\nYes?"],
        ["user", "prose", "Which port?"],
        ["assistant", "tool-call", 'archival_memory_search {"query": "port"}'],
        ["tool", "tool-result", "[]"],
        ["assistant", "prose", "8443."],
        ["user", "prose", "And here?\n\n[image left out: image/png]"],
        ["assistant", "prose", "The same."],
    ]
    assert left_out(items) == {
        **{"system prompt": 1, "thinking": 2, "delivery receipt": 1, "injected context": 2, "image": 1, "empty": 1}
    }
    said = said_in(items)
    assert said[1].speaker == "ann"
    assert said[1].created_at == datetime(2026, 1, 22, 2, 6, 4, 500_000, UTC)
    assert said[2].metadata == {"agent": "Loop", "model": "m-1", "tool": "archival_memory_search", "call_id": "c1"}
    assert len({one.session for one in said}) == 1
    assert len(set(origins(items))) == len(said)


def test_the_text_of_the_plain_kind_of_agent_is_what_it_says(path: Path) -> None:
    items = items_of(Letta(), write(path, agent_file(kind="letta_v1_agent")))
    assert short(items)[0][3] == "First boot.\n\nHello.\nYes?"


def test_thinking_is_kept_when_asked(path: Path) -> None:
    items = items_of(Letta(), write(path, agent_file()), options=ReadOptions(thinking=True))
    assert [content for *_, content in short(items)][:3] == ["First boot.\n\nHello.\nYes?", "Which port?", "look it up"]


def test_a_later_file_of_the_same_agent_keeps_the_origins(path: Path) -> None:
    before = items_of(Letta(), write(path, agent_file()))
    later = agent_file([*MESSAGES, {"role": "user", "content": text("More.")}])
    later["agents"][0]["messages"][3]["id"] = "message-99"
    after = items_of(Letta(), write(path, later), before[-1].state)
    assert origins(after)[:-1] == origins(before)
    assert short(after)[-1][3] == "More."


def test_a_file_of_the_first_versions_is_read(path: Path) -> None:
    messages = [
        {"role": "user", "text": "Hi.", "created_at": None},
        {"role": "user", "text": "Hi.", "created_at": None},
    ]
    items = items_of(Letta(), write(path, {"name": "Old", "agent_type": "memgpt_agent", "messages": messages}))
    assert [(one.content, one.created_at) for one in said_in(items)] == [("Hi.", None)] * 2
    assert len(set(origins(items))) == 2


def test_what_is_no_message_or_agent_is_told(path: Path) -> None:
    document = agent_file()
    document["agents"][0]["messages"][1] = "?"
    document["agents"].append({"name": "without"})
    assert bad(items_of(Letta(), write(path, document))) == [
        ("agent 1, message 2", "a message that is no object"),
        ("agent 2", "an agent without messages"),
    ]


@pytest.mark.parametrize("document", [[], {}, {"agents": {}}, 7])
def test_other_documents_are_refused(path: Path, document: Any) -> None:
    with pytest.raises(Unreadable, match="no agents"):
        items_of(Letta(), write(path, document))


def test_it_goes_on_from_every_mark(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("producers.transcripts.documents.MARK_EVERY", 4)
    assert check_resumption(Letta(), write(path, agent_file())) >= 4


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changes=damage())
def test_damage_never_raises_anything_but_unreadable(path: Path, changes: list[Any]) -> None:
    path.write_bytes(damaged(json.dumps(agent_file()).encode(), changes))
    check_survives(Letta(), path)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(value=JSON_VALUES, choice=st.floats(0, 1, exclude_max=True))
def test_any_json_anywhere_is_survived(path: Path, value: Any, choice: float) -> None:
    write(path, with_value_replaced(agent_file(), lambda count: int(choice * count), value))
    check_survives(Letta(), path)
