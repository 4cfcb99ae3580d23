"""Labelled sets: conversations become tenants, foreign roles become ours, and a bad line is named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from producers.errors import UsageError
from producers.settings import Settings
from query.evaluation.labelled import LabelledSet, read_labelled_set


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
    scopes = [["c1", "b1"], ["a1", "b1"], "a", "d"]
    read_set = read(tmp_path, turns, [question(scope, query_id=f"q{n}") for n, scope in enumerate(scopes)])
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
        ([], [question("a")], "turns.jsonl: holds no turn"),
        ([{"conversation_id": "a"}], [], "turns.jsonl, line 1: session_id, turn_index, role, content missing"),
        ([turn("a", "a1", content="")], [], "turns.jsonl, line 1: content: string should have at least 1 character"),
        ([turn("a", "a1", timestamp="soon")], [], "turns.jsonl, line 1: Invalid isoformat"),
        ([turn("a", "a1")], [question("nobody")], "queries.jsonl, line 1: scope 'nobody' is in no turn"),
        ([turn("a", "a1")], [question(5)], "queries.jsonl, line 1: scope 5 is no conversation id"),
        ([turn("a", "a1")], [question([])], "queries.jsonl, line 1: scope [] is no conversation id"),
        ([turn("a", "a1", timestamp=5)], [], "turns.jsonl, line 1: timestamp: a time as text is due, got 5"),
        ([turn("a", ["a1"])], [], "turns.jsonl, line 1: session_id: a text is due, got ['a1']"),
        ([turn("a", "a1", conversation_id=7)], [], "turns.jsonl, line 1: conversation_id: a text is due, got 7"),
        ([turn("a", "a1", role={})], [], "turns.jsonl, line 1: role: a text is due, got {}"),
        ([turn("a", "a1", turn_index="0")], [], "turns.jsonl, line 1: turn_index: input should be a valid integer"),
        ([turn("a", "a1")], [question(["a1", "a"])], "queries.jsonl, line 1: scope 'a' is in no turn"),
        ([turn("a", "a1")], [question("a", query=5)], "queries.jsonl, line 1: query: a text is due, got 5"),
        ([turn("a", "a1")], [question("a", query=" ")], "queries.jsonl, line 1: query: empty"),
        ([turn("a", "a1")], [question("a", query="x" * 100_001)], "query: 100,001 characters, over 100,000"),
        ([turn("a", "a1")], [question("a", query="\ud800")], "query: holds a lone surrogate"),
        ([turn("a", "a1")], [question("a", query_id=None)], "query_id: a text is due, got None"),
        ([turn("a", "a1")], [question("a", query_context=["c"])], "query_context: a text is due, got ['c']"),
        ([turn("a", "a1")], [question("a", query_context="c" * 100_001)], "query_context: 100,001 characters, over"),
        ([turn("a", "a1")], [question("a", category=["c"])], "category: a text is due, got ['c']"),
        ([turn("a", "a1")], [question("a"), question("a")], "line 2: query_id 'q' is that of line 1 as well"),
        ([turn("a", "a1")], [question("a", evidence=5)], "line 1: evidence: a list of {session_id, turn_index} is due"),
        ([turn("a", "a1")], [question("a", evidence={"session_id": "a1"})], "line 1: evidence: a list of"),
        ([turn("a", "a1")], [question("a", evidence=["a1"])], "line 1: evidence: each is {session_id"),
        ([turn("a", "a1")], [question("a", evidence=[{"session_id": "a1"}])], "line 1: evidence: each is {session_id"),
        (
            [turn("a", "a1")],
            [question("a", evidence=[{"session_id": "a1", "turn_index": "0"}])],
            "queries.jsonl, line 1: evidence: each is {session_id: a text, turn_index: a number}",
        ),
    ],
)
def test_a_bad_line_is_named_with_what_is_wrong(
    tmp_path: Path, turns: list[dict[str, Any]], questions: list[dict[str, Any]], said: str
) -> None:
    with pytest.raises(UsageError) as caught:
        read(tmp_path, turns, questions)
    assert said in str(caught.value)


def test_evidence_that_is_not_where_the_question_searches_is_found_out(tmp_path: Path) -> None:
    def at(session: str, index: int) -> list[dict[str, Any]]:
        return [{"session_id": session, "turn_index": index}]

    questions = [
        question("a", query_id="there", evidence=at("a1", 0)),
        question("a", query_id="unlabelled"),
        question("a", query_id="unknown", evidence=at("a1", 9)),
        question("a", query_id="elsewhere", evidence=at("b1", 0)),
        question(["a1", "b1"], query_id="both", evidence=at("b1", 0)),
    ]
    read_set = read(tmp_path, [turn("a", "a1"), turn("b", "b1")], questions)
    assert [one.judged.query_id for one in read_set.scored] == ["there", "unknown", "elsewhere", "both"]
    found = [(one.judged.query_id, where) for one, where in read_set.without_evidence_in_scope()]
    assert found == [("unknown", ("a1", 9)), ("elsewhere", ("b1", 0))]
