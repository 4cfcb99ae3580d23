"""The reader of LangChain's messages, on small files of our own making."""

from __future__ import annotations

import json
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

from producers.transcripts.langchain import LangChain
from producers.transcripts.port import ReadOptions, Unreadable

CALL = {"name": "weather", "args": {"city": "Oslo"}, "id": "c1", "type": "tool_call"}
CLASSES = {"system": "SystemMessage", "human": "HumanMessage", "ai": "AIMessage", "tool": "ToolMessage"}
PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
MESSAGES: list[tuple[str, dict[str, Any]]] = [
    ("system", {"content": "Be brief."}),
    ("human", {"content": "Weather in Oslo?", "id": "h1", "name": "ann"}),
    (
        "ai",
        {
            "content": [
                {"type": "text", "text": "Let me see."},
                {"type": "thinking", "thinking": "hm"},
                {"type": "tool_use", "id": "c1", "name": "weather", "input": {"city": "Oslo"}},
                {"type": "text", "text": "One moment."},
            ],
            "id": "a1",
            "tool_calls": [CALL],
            "response_metadata": {"model_name": "m-1"},
        },
    ),
    ("tool", {"content": "4 C", "name": "weather", "tool_call_id": "c1", "id": "t1"}),
    ("ai", {"content": "4 degrees.", "id": "a2"}),
    ("human", {"content": ["And", {"type": "text", "text": "this?"}, PICTURE]}),
    ("human", {"content": ["And", {"type": "text", "text": "this?"}, PICTURE]}),
]
EXPECTED = [
    ("user", "prose", "Weather in Oslo?"),
    ("assistant", "prose", "Let me see.\n\n[thinking left out]\n\nOne moment."),
    ("assistant", "tool-call", 'weather {"city":"Oslo"}'),
    ("tool", "tool-result", "4 C"),
    ("assistant", "prose", "4 degrees."),
    ("user", "prose", "And\n\nthis?\n\n[image left out: image/png]"),
    ("user", "prose", "And\n\nthis?\n\n[image left out: image/png]"),
]


def to_dict(messages: list[tuple[str, dict[str, Any]]]) -> list[Any]:
    return [{"type": kind, "data": {"type": kind, **data}} for kind, data in messages]


def to_constructors(messages: list[tuple[str, dict[str, Any]]]) -> list[Any]:
    return [
        {"lc": 1, "type": "constructor", "id": ["langchain", "schema", "messages", CLASSES[kind]], "kwargs": data}
        for kind, data in messages
    ]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "messages.json"


def write(path: Path, document: Any) -> Path:
    path.write_text(json.dumps(document))
    return path


def test_both_shapes_say_the_same_with_the_same_origins(path: Path) -> None:
    read = []
    for shape in (to_dict, to_constructors):
        assert LangChain().recognises(sample_of(write(path, shape(MESSAGES))))
        read.append(items_of(LangChain(), path))
    assert read[0] == [*read[1][:-1], read[0][-1]]  # but for the size in the mark
    assert [kinds for _, *kinds in short(read[0])] == [list(one) for one in EXPECTED]
    assert left_out(read[0]) == {"system prompt": 1, "thinking": 1, "image": 2}
    said = said_in(read[0])
    assert len({one.session for one in said}) == 1
    assert len(set(origins(read[0]))) == len(said)
    assert (said[0].speaker, said[1].metadata) == ("ann", {"model": "m-1"})
    assert said[3].metadata == {"tool": "weather", "call_id": "c1"}
    assert all(one.created_at is None for one in said)


def test_a_file_that_has_grown_has_the_same_origins_and_what_is_new(path: Path) -> None:
    before = items_of(LangChain(), write(path, to_dict(MESSAGES)))
    after = items_of(LangChain(), write(path, to_dict([*MESSAGES, ("ai", {"content": "Blank."})])), before[-1].state)
    assert origins(after)[:-1] == origins(before)
    assert said_in(after)[-1].content == "Blank."


def test_conversations_are_found_in_lists_prompts_and_states(path: Path) -> None:
    def conversation(text: str) -> list[Any]:
        return to_constructors([("human", {"content": text})])

    prompt = {"lc": 1, "type": "constructor", "id": ["x", "ChatPromptValue"], "kwargs": {"messages": conversation("b")}}
    memory = {"chat_memory": {"messages": to_dict([("human", {"content": "c"})])}}
    write(path, [conversation("a"), prompt, memory, conversation("a")])
    items = items_of(LangChain(), path)
    assert [content for *_, content in short(items)] == ["a", "b", "c", "a"]
    assert len({one.session for one in said_in(items)}) == 4


def test_calls_are_found_wherever_a_provider_puts_them(path: Path) -> None:
    function = {"name": "f", "arguments": '{"x":1}'}
    shapes: list[dict[str, Any]] = [
        {"content": "", "additional_kwargs": {"tool_calls": [{"id": "c", "function": function}]}},
        {"content": "", "additional_kwargs": {"function_call": function}},
        {"content": [{"type": "tool_use", "id": "c", "name": "f", "input": {"x": 1}}]},
        {"content": None, "tool_calls": [], "invalid_tool_calls": [{"name": "f", "args": '{"x":1}', "id": None}]},
    ]
    items = items_of(LangChain(), write(path, to_dict([("ai", shape) for shape in shapes])))
    assert [(kind, content) for _, _, kind, content in short(items)] == [("tool-call", 'f {"x":1}')] * 4


def test_thinking_alone_is_left_out_and_kept_when_asked(path: Path) -> None:
    write(path, to_dict([("ai", {"content": [{"type": "thinking", "thinking": "hm"}]})]))
    assert left_out(items_of(LangChain(), path)) == {"thinking": 1, "empty": 1}
    assert said_in(items_of(LangChain(), path, options=ReadOptions(thinking=True)))[0].content == "hm"


def test_what_is_no_message_among_messages_is_told(path: Path) -> None:
    items = items_of(LangChain(), write(path, [7, *to_dict(MESSAGES[1:2]), {"type": "human"}]))
    assert [content for *_, content in short(items)] == ["Weather in Oslo?"]
    assert bad(items) == [
        ("conversation 1, message 1", "not a LangChain message"),
        ("conversation 1, message 3", "not a LangChain message"),
    ]


@pytest.mark.parametrize("text", ["", "[", "{}", "7", '[{"type": "human"}]', "[" * 10_000])
def test_a_file_without_messages_is_refused(path: Path, text: str) -> None:
    path.write_text(text)
    with pytest.raises(Unreadable):
        items_of(LangChain(), path)


def test_a_document_over_the_bound_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("producers.transcripts.documents.MAX_DOCUMENT_BYTES", 1 << 20)
    path.write_text(" " * (1 << 20) + "[]")
    with pytest.raises(Unreadable, match="larger than 1 MiB"):
        items_of(LangChain(), path)


def test_it_goes_on_from_every_mark(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("producers.transcripts.documents.MARK_EVERY", 3)
    assert check_resumption(LangChain(), write(path, to_dict(MESSAGES))) == 4


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changes=damage())
def test_damage_never_raises_anything_but_unreadable(path: Path, changes: list[Any]) -> None:
    path.write_bytes(damaged(json.dumps(to_dict(MESSAGES)).encode(), changes))
    check_survives(LangChain(), path)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(value=JSON_VALUES, choice=st.floats(0, 1, exclude_max=True), shape=st.sampled_from([to_dict, to_constructors]))
def test_any_json_anywhere_is_survived(path: Path, value: Any, choice: float, shape: Any) -> None:
    write(path, with_value_replaced(shape(MESSAGES), lambda count: int(choice * count), value))
    check_survives(LangChain(), path)
