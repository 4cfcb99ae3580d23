"""Labelled sets: conversations become tenants, foreign roles become ours, and a bad line is named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from producers.errors import UsageError
from producers.settings import Settings
from query.labelled import LabelledSet, read_labelled_set


def turn(conversation: str, session: str, **fields: Any) -> dict[str, Any]:
    base = {"conversation_id": conversation, "session_id": session, "turn_index": 0, "role": "user", "content": "x"}
    return base | fields


def question(scope: Any, **fields: Any) -> dict[str, Any]:
    return {"query_id": "q", "query": "x", "scope": scope, "evidence": []} | fields


def read(tmp_path: Path, turns: list[dict[str, Any]], questions: list[dict[str, Any]]) -> LabelledSet:
    paths = tmp_path / "turns.jsonl", tmp_path / "queries.jsonl"
    for path, rows in zip(paths, (turns, questions), strict=True):
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return read_labelled_set(*paths, Settings())


def test_a_conversation_is_a_tenant_of_its_own(tmp_path: Path) -> None:
    read_set = read(tmp_path, [turn("a", "a1"), turn("b", "b1")], [question("b")])
    assert [event.tenant for event in read_set.events] == ["a", "b"]
    assert [(one.tenant, one.sessions) for one in read_set.questions] == [("b", ())]


def test_conversations_that_one_question_searches_share_a_tenant_and_keep_their_bounds(tmp_path: Path) -> None:
    turns = [turn("a", "a1"), turn("b", "b1"), turn("c", "c1"), turn("d", "d1")]
    read_set = read(tmp_path, turns, [question(["c1", "b1"]), question(["a1", "b1"]), question("a"), question("d")])
    assert [event.tenant for event in read_set.events] == ["a", "a", "a", "d"]
    assert [(one.tenant, one.sessions) for one in read_set.questions] == [
        ("a", ("c1", "b1")),
        ("a", ("a1", "b1")),
        ("a", ("a1",)),
        ("d", ()),
    ]


@pytest.mark.parametrize(
    ("role", "becomes", "tags"),
    [
        ("assistant", "assistant", ()),
        ("tool", "tool", ()),
        ("tool_call", "tool", ("tool_call",)),
        ("memory", "system", ("memory",)),
        ("document", "system", ("document",)),
    ],
)
def test_a_role_of_another_set_becomes_one_of_ours_and_stays_as_a_tag(
    tmp_path: Path, role: str, becomes: str, tags: tuple[str, ...]
) -> None:
    (event,) = read(tmp_path, [turn("a", "a1", role=role)], []).events
    assert (event.role, event.tags) == (becomes, tags)


def test_turn_events_and_tenants_are_taken_as_they_are(tmp_path: Path) -> None:
    event = {"tenant": "t", "session_id": "s", "turn_index": 3, "role": "user", "content": "x"}
    event["created_at"] = "2026-01-31T09:00:00+08:00"
    asked = {"query_id": "q", "query": "x", "tenant": "t", "evidence": [{"session_id": "s", "turn_index": 3}]}
    read_set = read(tmp_path, [event], [asked])
    assert read_set.events[0].created_at is not None
    assert read_set.events[0].created_at.isoformat() == "2026-01-31T09:00:00+08:00"
    assert read_set.questions[0].judged.evidence == {("s", 3)}


@pytest.mark.parametrize(
    ("turns", "questions", "said"),
    [
        ([{"conversation_id": "a"}], [], "turns.jsonl, line 1: session_id, turn_index, role, content missing"),
        ([turn("a", "a1", content="")], [], "turns.jsonl, line 1: content: string should have at least 1 character"),
        ([turn("a", "a1", timestamp="soon")], [], "turns.jsonl, line 1: Invalid isoformat"),
        ([turn("a", "a1")], [question("nobody")], "queries.jsonl, line 1: scope 'nobody' is in no turn"),
        ([turn("a", "a1")], [question(5)], "queries.jsonl, line 1: scope 5 is no conversation id"),
        ([turn("a", "a1")], [question([])], "queries.jsonl, line 1: scope [] is no conversation id"),
        ([turn("a", "a1")], [question("a", evidence=[{"session_id": "a1"}])], "question q: evidence is a list of"),
    ],
)
def test_a_bad_line_is_named_with_what_is_wrong(
    tmp_path: Path, turns: list[dict[str, Any]], questions: list[dict[str, Any]], said: str
) -> None:
    with pytest.raises(UsageError) as caught:
        read(tmp_path, turns, questions)
    assert said in str(caught.value)
