"""Chat-completions logs: each turn once, whatever the lines repeat."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from builders import REPLY, openai, write_lines
from reading import read, said, with_rest

from producers.transcripts.openai import OpenAI
from producers.transcripts.port import Bad, Item, LeftOut, ReadOptions, Said


def user(text: Any) -> dict[str, Any]:
    return {"role": "user", "content": text}


def assistant(text: Any, **fields: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": text} | fields


def of_lines(tmp_path: Path, *lines: Any, options: ReadOptions = ReadOptions()) -> list[Item]:
    return read(OpenAI(), write_lines(tmp_path / "log.jsonl", lines), options)


def texts(items: list[Item]) -> list[str]:
    return [item.content for item in items if isinstance(item, Said)]


def reasons(items: list[Item]) -> list[str]:
    return [item.reason for item in items if isinstance(item, (LeftOut, Bad))]


def test_a_log_gives_each_turn_once(tmp_path: Path) -> None:
    items = read(OpenAI(), openai(tmp_path))
    assert [(item.role, item.kind, item.content) for item in items if isinstance(item, Said)] == [
        ("user", "prose", "Which port?\n\n[image left out]"),
        ("user", "prose", "hi"),
        ("assistant", "prose", "hello"),
        ("assistant", "tool-call", 'recall {"q":"port"}'),
        ("tool", "tool-result", "6380"),
        ("assistant", "prose", REPLY),
        ("user", "prose", "Thanks."),
    ]
    assert Counter(reasons(items)) == {"system prompt": 3, "image": 1, "repeated prefix": 4, "injected context": 1}
    kept = [item for item in items if isinstance(item, Said)]
    assert len({item.session for item in kept}) == 2
    assert kept[2].created_at == datetime.fromtimestamp(1_700_000_000, UTC)
    assert kept[4].metadata == {"tool": "recall", "call_id": "call_1", "model": "m"}


def test_a_growing_log_of_alternating_conversations_gives_each_turn_once(tmp_path: Path) -> None:
    talks = [[user(f"question {t}"), *(assistant(f"{t}.{i}") for i in range(30))] for t in range(5)]
    lines = [{"messages": talk[: i + 1]} for i in range(31) for talk in talks]
    items = of_lines(tmp_path, *lines)
    assert Counter(texts(items)) == Counter(message["content"] for talk in talks for message in talk)
    assert len({item.session for item in items if isinstance(item, Said)}) == 5


def test_a_message_is_the_same_when_it_is_sent_again_in_another_shape(tmp_path: Path) -> None:
    call = {"id": "c", "function": {"name": "f", "arguments": '{"a": 1}'}}
    reply = assistant(None, reasoning_content="hm", tool_calls=[call])
    again = assistant("", tool_calls=[{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}])
    first = {"messages": [user("hi")], "response": {"choices": [{"message": reply}]}}
    long, short = ({"role": "tool", "tool_call_id": "c", "content": text} for text in ("a long result", "[cleared]"))
    second = {"messages": [user([{"type": "text", "text": "hi"}]), again, long]}
    third = {"messages": [user("hi"), again, short, user("next")]}
    assert texts(of_lines(tmp_path, first, second, third)) == ["hi", 'f {"a": 1}', "a long result", "next"]


def test_conversations_that_begin_alike_share_the_beginning_and_keep_each_branch(tmp_path: Path) -> None:
    lines = [{"messages": [user("hi"), assistant("hello"), user(x), assistant("4")]} for x in ("2+2", "1+3", "2+2")]
    items = of_lines(tmp_path, *lines)
    assert texts(items) == ["hi", "hello", "2+2", "4", "1+3", "4"]
    assert len({item.origin for item in items if isinstance(item, Said)}) == 6
    assert len({item.session for item in items if isinstance(item, Said)}) == 1


def test_a_session_that_the_log_names_is_kept_apart(tmp_path: Path) -> None:
    lines = [
        {"session_id": "a", "messages": [user("hi")]},
        {"metadata": {"conversation_id": "b"}, "messages": [user("hi")]},
    ]
    assert [item.session for item in said(OpenAI(), write_lines(tmp_path / "log.jsonl", lines))] == ["a", "b"]


def test_a_compacted_log_goes_on_as_a_new_branch_without_the_summary(tmp_path: Path) -> None:
    before = [user("first"), assistant("a"), user("second"), assistant("b")]
    after = [user("[CONTEXT COMPACTION - REFERENCE ONLY] a"), user("second"), assistant("b"), user("third")]
    items = of_lines(tmp_path, {"messages": before}, {"messages": after}, {"messages": [*after, assistant("c")]})
    assert texts(items) == ["first", "a", "second", "b", "second", "b", "third", "c"]
    assert reasons(items)[0] == "compaction summary"


@pytest.mark.parametrize("wrapped", ["request", "body", "input"])
def test_a_request_is_found_where_loggers_keep_it(tmp_path: Path, wrapped: str) -> None:
    items = of_lines(
        tmp_path, {wrapped: {"model": "m", "messages": [user("hi")]}}, {wrapped: {"body": {"messages": []}}}
    )
    assert [(item.content, item.metadata) for item in items if isinstance(item, Said)] == [("hi", {"model": "m"})]


@pytest.mark.parametrize(
    ("message", "said", "left_out"),
    [
        (assistant("x", reasoning_content="hm"), ["x"], ["thinking"]),
        (assistant("<think>hm</think>x"), ["x"], ["thinking"]),
        (assistant(""), [], ["empty"]),
        (assistant(None, refusal="I will not."), ["I will not."], []),
        (assistant(None, function_call={"name": "f", "arguments": "{}"}), ["f {}"], []),
        (assistant("x", tool_calls=[{"id": "c", "custom": {"name": "f", "input": "y"}}]), ["x", "f y"], []),
        ({"role": "function", "name": "f", "content": "result"}, ["result"], []),
        ({"role": "developer", "content": "be terse"}, [], ["system prompt"]),
        (
            user([{"type": "input_audio", "input_audio": {}}, {"type": "text", "text": "x"}]),
            ["[input_audio left out]\n\nx"],
            [],
        ),
        (user("<system-reminder>x</system-reminder>"), [], ["injected context"]),
        (user(7), [], ["a message's content is neither text nor a list"]),
        ({"role": "stranger"}, [], ["a message has no known role"]),
        ("text", [], ["a message is not an object"]),
    ],
)
def test_each_sort_of_message_is_read(tmp_path: Path, message: Any, said: list[str], left_out: list[str]) -> None:
    items = of_lines(tmp_path, {"messages": [message]})
    assert texts(items) == said
    assert reasons(items) == left_out


def test_only_the_first_choice_is_what_was_said(tmp_path: Path) -> None:
    choices = [{"message": assistant(text)} for text in ("a", "b")]
    items = of_lines(tmp_path, {"messages": [user("hi")], "response": {"choices": choices}})
    assert texts(items) == ["hi", "a"]
    assert reasons(items) == ["other choice"]


def test_what_was_forgotten_is_said_again_with_the_same_origins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("producers.transcripts.openai.MAX_KNOWN", 2)
    lines = [{"messages": [user(f"{i}"), assistant("x")]} for i in (1, 2, 3, 1)]
    items = [item for item in of_lines(tmp_path, *lines) if isinstance(item, Said)]
    assert [item.origin for item in items[:2]] == [item.origin for item in items[6:]]


def test_reading_goes_on_behind_each_mark_knowing_what_was_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("producers.transcripts.json_objects.MARK_ITEMS", 1)
    talk = [user("q"), *(assistant(f"{i}") for i in range(20))]
    path = write_lines(tmp_path / "log.jsonl", [{"messages": talk[: i + 1]} for i in range(21)])
    marks = with_rest(list(OpenAI().read(path, ReadOptions(), None)))
    assert len(marks) > 20
    for state, rest in marks:
        assert read(OpenAI(), path, state=state) == rest


def test_a_last_line_that_is_being_written_is_read_when_it_is_whole(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "log.jsonl", [{"messages": [user("a")]}, {"messages": [user("b")]}])
    whole = path.read_bytes()
    path.write_bytes(whole[:-10])
    before = list(OpenAI().read(path, ReadOptions(), None))
    assert texts(before) == ["a"]
    state, _ = with_rest(before)[-1]
    path.write_bytes(whole)
    assert texts(read(OpenAI(), path, state=state)) == ["b"]
