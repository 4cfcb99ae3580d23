"""The ChatGPT export: the shown branch of each tree, and everything else told."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from builders import REPLY, chatgpt, conversation, node
from chatgpt_export import write_export
from hypothesis import given, settings
from hypothesis import strategies as st
from reading import read, said, turns_of, with_rest

from producers.transcripts.chatgpt import ChatGPT
from producers.transcripts.port import Bad, Item, LeftOut, Mark, ReadOptions, Said
from producers.transcripts.text import digest

UUIDS = [f"00000000-0000-4000-8000-{i:012}" for i in range(9)]


def items_of(tmp_path: Path, value: Any, options: ReadOptions = ReadOptions()) -> list[Item]:
    path = tmp_path / "conversations.json"
    path.write_text(json.dumps(value))
    return read(ChatGPT(), path, options)


def left_out(items: list[Item]) -> Counter[str]:
    return Counter(item.reason for item in items if isinstance(item, LeftOut))


def at(seconds: float) -> datetime:
    return datetime.fromtimestamp(1_700_000_000 + seconds, UTC)


def test_the_shown_branch_is_read_in_the_order_of_the_tree(tmp_path: Path) -> None:
    items = read(ChatGPT(), chatgpt(tmp_path))
    turns = [
        (item.session, item.role, item.kind, item.content, item.created_at) for item in items if isinstance(item, Said)
    ]
    assert turns == [
        ("first", "user", "prose", "hi", at(0)),
        ("first", "assistant", "prose", "hello", None),
        ("second", "user", "prose", "Which port does Redis use?", at(10.5)),
        ("second", "assistant", "tool-call", "python print(port)", at(12)),
        ("second", "tool", "tool-result", "6380", at(9)),
        ("second", "assistant", "prose", REPLY, at(14)),
        ("second", "user", "prose", "[image left out]\n\nWhat is it?", None),
        ("second", "assistant", "prose", "A \ud83d port.", None),
    ]
    expected = {"empty": 1, "injected context": 1, "other branch": 1, "thinking": 1, "image": 1}
    assert left_out(items) == expected
    assert not [item for item in items if isinstance(item, Bad)]


def test_facts_of_a_message_are_kept(tmp_path: Path) -> None:
    facts = [item.metadata for item in said(ChatGPT(), chatgpt(tmp_path))]
    assert facts[3:6] == [
        {"title": "second", "tool": "python"},
        {"title": "second", "tool": "python"},
        {"title": "second", "model": "gpt-4o"},
    ]


def test_one_conversation_as_an_object_reads_as_in_an_array(tmp_path: Path) -> None:
    talk = conversation("c", [node("u", None, "user", "hi"), node("a", "u", "assistant", "hello")])
    alone, listed = items_of(tmp_path, talk), items_of(tmp_path, [talk])
    assert [(one.origin, one.content) for one in turns_of(alone)] == [(i.origin, i.content) for i in turns_of(listed)]


def test_an_id_of_a_message_counts_everywhere_and_a_short_one_in_its_conversation(tmp_path: Path) -> None:
    nodes = [node(UUIDS[0], None, "user", "hi"), node("a", UUIDS[0], "assistant", "hello")]
    items = items_of(tmp_path, [conversation("c", nodes), conversation("branch", nodes)])
    origins = [item.origin for item in items if isinstance(item, Said)]
    assert origins == [UUIDS[0], digest("c", "a"), UUIDS[0], digest("branch", "a")]


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ({"content": {"content_type": "user_editable_context", "user_profile": "x"}}, "injected context"),
        ({"content": {"content_type": "model_editable_context", "model_set_context": "x"}}, "injected context"),
        ({"metadata": {"is_user_system_message": True}}, "injected context"),
        ({"metadata": {"is_visually_hidden_from_conversation": True}}, "hidden"),
        ({"author": {"role": "system"}}, "system prompt"),
        ({"content": {"content_type": "text", "parts": ["", None, 3]}}, "empty"),
        ({"content": None}, "empty"),
        ({"content": {"content_type": "reasoning_recap", "content": "Thought for 5 s"}}, "thinking"),
        ({"content": {"content_type": "thoughts", "thoughts": [{"content": "hm"}]}}, "thinking"),
        ({"author": {"role": "tool", "name": "a8km123"}}, "thinking"),
        ({"author": {"role": "assistant"}, "channel": "analysis"}, "thinking"),
    ],
)
def test_what_is_no_conversation_is_left_out(tmp_path: Path, message: dict[str, Any], reason: str) -> None:
    one = node("m", None, "user", "text")
    one["message"] |= message
    assert items_of(tmp_path, [conversation("c", [one])]) == [LeftOut(reason)]


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ({"content_type": "code", "language": "python", "text": "x = 1"}, "x = 1"),
        ({"content_type": "tether_quote", "title": "T", "url": "u", "text": "quote"}, "T\n\nu\n\nquote"),
        ({"content_type": "tether_browsing_display", "result": "found", "summary": None}, "found"),
        ({"content_type": "system_error", "name": "Timeout", "text": "late"}, "Timeout\n\nlate"),
        ({"parts": [{"content_type": "audio_transcription", "text": "heard"}]}, "heard"),
        ({"parts": [{"content_type": "audio_asset_pointer"}, "a", "b"]}, "[audio_asset_pointer left out]\n\na\n\nb"),
    ],
)
def test_each_sort_of_content_has_its_text(tmp_path: Path, content: dict[str, Any], text: str) -> None:
    turns = items_of(tmp_path, [conversation("c", [node("m", None, "user", content)])])
    assert [item.content for item in turns if isinstance(item, Said)] == [text]


def test_options_decide_about_thinking_and_results(tmp_path: Path) -> None:
    path = chatgpt(tmp_path)
    kept = said(ChatGPT(), path, ReadOptions(thinking=True))
    assert [(item.role, item.kind, item.content) for item in kept][3] == ("assistant", "prose", "hm\n\nask")
    skipped = read(ChatGPT(), path, ReadOptions(tool_results="skip"))
    assert left_out(skipped)["tool result"] == 1


@pytest.mark.parametrize(
    ("nodes", "fields", "problem", "shown"),
    [
        ([("a", "gone")], {}, "a message's parent is missing", ["a"]),
        ([("a", "b"), ("b", "a")], {}, "messages are their own parents", ["a", "b"]),
        ([("a", "a")], {}, "messages are their own parents", ["a"]),
        ([("a", None), ("b", "a")], {"current_node": None}, None, ["a", "b"]),
        ([("a", None), ("b", "a")], {"current_node": "gone"}, None, ["a", "b"]),
    ],
)
def test_a_broken_tree_ends_and_is_told(
    tmp_path: Path, nodes: list[tuple[str, str | None]], fields: dict[str, Any], problem: str | None, shown: list[str]
) -> None:
    talk = conversation("c", [node(key, parent, "user", key) for key, parent in nodes], **fields)
    items = items_of(tmp_path, [talk])
    assert [item.content for item in items if isinstance(item, Said)] == shown
    assert [item.reason for item in items if isinstance(item, Bad)] == ([problem] if problem else [])


@settings(max_examples=60, deadline=None)
@given(at=st.integers(0, 10_000), insert=st.sampled_from([b"", b"{", b"}", b"]", b"[", b'"', b"\x00", b",", b"\\"]))
def test_damage_costs_the_conversation_it_is_in(
    tmp_path_factory: pytest.TempPathFactory, at: int, insert: bytes
) -> None:
    talks = [conversation(f"c{i}", [node(f"{i}", None, "user", 'say "it" {twice} [x]')]) for i in range(5)]
    parts = [json.dumps(talk).encode() for talk in talks]
    at %= len(parts[2])
    parts[2] = parts[2][:at] + insert + parts[2][at + 1 :]
    path = tmp_path_factory.getbasetemp() / "damaged.json"
    path.write_bytes(b"[" + b",\n".join(parts) + b"]")
    sessions = [item.session for item in said(ChatGPT(), path)]
    assert [name for name in sessions if name in ("c0", "c1", "c3", "c4")] == ["c0", "c1", "c3", "c4"]


def test_a_generated_export_gives_its_counts_and_goes_on_from_every_mark(tmp_path: Path) -> None:
    path = tmp_path / "conversations.json"
    expected = write_export(path, 1_500_000, seed=4)
    items = list(ChatGPT().read(path, ReadOptions(), None))
    found = Counter(f"left out: {item.reason}" for item in items if isinstance(item, LeftOut))
    found += Counter(item.kind for item in items if isinstance(item, Said))
    assert found + Counter(conversations=expected["conversations"]) == expected
    marks = with_rest(items)
    assert len(marks) > 1
    for state, rest in marks:
        assert read(ChatGPT(), path, state=state) == rest
    assert sum(isinstance(item, Mark) for item in items) == len(marks)
