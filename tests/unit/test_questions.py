"""A file of questions: each line names its own scope, and what it names is never ignored."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from producers.errors import UsageError
from query.commands.recall import place_of, read_questions
from query.question import Question
from query.recent import Recent

GOOD: dict[str, Any] = {"query_id": "q1", "query": "which port?", "tenant": "t"}


def read(tmp_path: Path, *rows: str) -> list[tuple[str, Question]]:
    file = tmp_path / "questions.jsonl"
    file.write_text("\n".join(rows))
    return list(read_questions(file))


def test_a_line_can_name_every_filter_and_other_fields_are_not_looked_at(tmp_path: Path) -> None:
    filters = {
        "sessions": ["s"],
        "agents": ["a"],
        "roles": ["user"],
        "tags": ["x"],
        "sources": ["push"],
        "exclude_sessions": ["e"],
        "since": "2026-01-01",
        "until": "2026-02-01T00:00:00+08:00",
        "as_of": "2026-01-15",
        "exclude_recent": ["a:b:20", "live:1"],
        "where": {"git.branch": ["main", "next"], "n": 3, "gone": None},
        "code_languages": ["python"],
        "query_context": "before",
    }
    ((query_id, question),) = read(tmp_path, json.dumps(GOOD | filters | {"evidence": [], "category": "c"}))
    scope = question.scope
    assert (query_id, question.text) == ("q1", "which port?")
    assert (scope.tenant, scope.sessions, scope.agents, scope.roles) == ("t", ("s",), ("a",), ("user",))
    assert (scope.tags, scope.sources, scope.exclude_sessions) == (("x",), ("push",), ("e",))
    assert scope.where == (("git.branch", "main"), ("git.branch", "next"), ("n", "3"), ("gone", "null"))
    assert scope.code_languages == ("python",)
    assert scope.since is not None
    assert scope.until is not None
    assert question.exclude_recent == (Recent("a:b", 20), Recent("live", 1))
    assert question.query_context == "before"
    assert question.as_of is not None
    assert question.seen.until == question.as_of + timedelta(microseconds=1)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"role": ["user"]}, "role: unknown field; did you mean roles?"),
        ({"session": "s"}, "session: unknown field; did you mean sessions?"),
        ({"neighbors": 2}, "neighbors: unknown field; did you mean neighbours?"),
        ({"code_language": ["c"]}, "code_language: unknown field; did you mean code_languages?"),
        ({"where": ["a=b"]}, 'where: an object is due, such as {"git.branch": "main"}, got list'),
        ({"where": {"a": {"b": 1}}}, "where 'a': strings, numbers, true, false or null are due"),
        ({"where": []}, 'where: an object is due, such as {"git.branch": "main"}, got list'),
        ({"where": {"a": []}}, "where 'a': no value; leave the key out to allow any"),
        ({"where": {"": 1}}, "where: a key is missing"),
        ({"exclude_recent": "s:1"}, "exclude_recent: a list of strings is due, got 's:1'"),
        ({"exclude_recent": ["s"]}, "exclude_recent 's': SESSION:N is due, such as deploy-7:20"),
        ({"exclude_recent": ["s:1"] * 101}, "exclude_recent: 101 sessions, over the limit of 100"),
        ({"exclude_recent": [":3"]}, "SESSION:N is due"),
        ({"exclude_recent": ["s:-3"]}, "SESSION:N is due"),
        ({"exclude_recent": ["s:٣"]}, "SESSION:N is due"),
        ({"exclude_recent": ["s:0"]}, "N must be from 1 to 1,000,000; to leave out all of a session"),
        ({"exclude_recent": ["s:" + "9" * 5000]}, "N must be from 1 to 1,000,000"),
        ({"exclude_session": ["s"]}, "did you mean exclude_sessions?"),
        ({"k": 3}, "k: not a field of a line: give it as an option"),
        ({"roles": ["boss"]}, "roles: there is no role 'boss'; there are user,"),
        ({"sessions": [1]}, "sessions: a list of strings is due, got [1]"),
        ({"sessions": "s"}, "sessions: a list of strings is due, got 's'"),
        ({"query": 5}, "query and tenant are strings"),
        ({"query": " "}, "query: empty"),
        ({"since": "soon"}, "--since 'soon': not a date"),
        ({"as_of": "soon"}, "--as-of 'soon': not a date"),
        ({"query_context": ["before"]}, "query_context: a text is due, got ['before']"),
        ({"query_contexts": "before"}, "did you mean query_context?"),
        ({"as_of": 5}, "as_of: a time as text is due, got 5"),
        ({"since": "2026-02-01", "until": "2026-01-01"}, "is not before until"),
    ],
)
def test_a_line_that_would_be_answered_too_widely_is_refused_with_its_number(
    tmp_path: Path, changes: dict[str, Any], said: str
) -> None:
    with pytest.raises(UsageError) as caught:
        read(tmp_path, json.dumps(GOOD), "", json.dumps(GOOD | changes))
    assert "line 3: " in str(caught.value)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("[]", "not a JSON object"),
        ("{", "line 1"),
        (json.dumps({"query_id": "q", "query": "x"}), "tenant is missing"),
        ("[" * 100_000, "nested too deeply"),
    ],
)
def test_a_broken_line_is_named(tmp_path: Path, line: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        read(tmp_path, line)
    assert said in str(caught.value)


def test_a_turn_is_named_by_session_and_index_and_a_session_may_hold_colons() -> None:
    assert place_of("a:b:4") == ("a:b", 4)
    assert place_of(None) is None
    for text in ("a", "a:", ":4", "a:x", "a:-1", "a:²"):
        with pytest.raises(UsageError, match="SESSION:TURN is due"):
            place_of(text)
