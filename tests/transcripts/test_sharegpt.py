"""ShareGPT and Hermes trajectories: tags told apart, sessions and origins without ids."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from builders import REPLY, sharegpt, write_lines
from reading import read, said

from producers.transcripts.port import Bad, Item, LeftOut, ReadOptions, Said
from producers.transcripts.sharegpt import ShareGPT


def turns(items: list[Item]) -> list[tuple[str, str, str]]:
    return [(item.role, item.kind, item.content) for item in items if isinstance(item, Said)]


def turns_with(items: list[Item]) -> list[Said]:
    return [item for item in items if isinstance(item, Said)]


def reasons(items: list[Item]) -> list[str]:
    return [item.reason for item in items if isinstance(item, (LeftOut, Bad))]


def of_messages(tmp_path: Path, *messages: Any, options: ReadOptions = ReadOptions(), **fields: Any) -> list[Item]:
    return read(ShareGPT(), write_lines(tmp_path / "one.jsonl", [{"conversations": messages} | fields]), options)


def test_a_trajectory_gives_prose_calls_and_results_apart(tmp_path: Path) -> None:
    items = read(ShareGPT(), sharegpt(tmp_path))
    assert turns(items) == [
        ("user", "prose", "Which port?"),
        ("assistant", "prose", "Looking."),
        ("assistant", "tool-call", 'recall {"q":"port"}'),
        ("tool", "tool-result", '{"hits":["6380"]}'),
        ("assistant", "prose", REPLY),
        ("user", "prose", "hi"),
        ("assistant", "prose", "hello"),
    ]
    assert reasons(items) == ["system prompt", "thinking"]
    kept = [item for item in items if isinstance(item, Said)]
    assert [item.metadata for item in kept[2:4]] == [
        {"tool": "recall", "model": "m"},
        {"tool": "recall", "call_id": "call_1", "model": "m"},
    ]
    assert {item.created_at for item in kept} == {None}
    assert len({item.session for item in kept[:5]}) == 1
    assert len({item.session for item in kept[5:]}) == 1
    assert re.fullmatch("7-[0-9a-f]{32}", kept[5].session)


def talk(*texts: str) -> list[dict[str, str]]:
    return [{"from": "gpt" if number % 2 else "human", "value": text} for number, text in enumerate(texts)]


@pytest.mark.parametrize(("given", "sessions"), [(0, 2), ("0", 2), (-1, 2), ("chat-0", 1), ("0a", 1)])
def test_numbers_that_every_export_counts_do_not_mix_conversations(
    tmp_path: Path, given: int | str, sessions: int
) -> None:
    prompt = {"from": "system", "value": "Be brief."}
    one = turns_with(of_messages(tmp_path, prompt, *talk("Hello", "Hi."), id=given))
    two = turns_with(of_messages(tmp_path, prompt, *talk("Hello", "What now?"), id=given))
    assert len({turn.session for turn in one + two}) == sessions
    assert len({turn.origin for turn in one + two}) == (4 if sessions == 2 else 3)


def test_a_numbered_conversation_that_has_grown_is_the_same(tmp_path: Path) -> None:
    one = turns_with(of_messages(tmp_path, *talk("Hello", "Hi."), id=0))
    grown = turns_with(of_messages(tmp_path, *talk("Hello", "Hi.", "Which port?"), id=0))
    assert [(turn.session, turn.origin) for turn in grown[:2]] == [(turn.session, turn.origin) for turn in one]
    assert grown[2].session == one[0].session


def test_an_array_reads_as_its_lines(tmp_path: Path) -> None:
    lines = sharegpt(tmp_path)
    array = tmp_path / "array.json"
    array.write_text(json.dumps([json.loads(line) for line in lines.read_text().splitlines()], indent=2))
    assert [one.origin for one in said(ShareGPT(), array)] == [one.origin for one in said(ShareGPT(), lines)]


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("Human", "x", ("user", "prose", "x")),
        ("chatgpt", "x", ("assistant", "prose", "x")),
        ("observation", "x", ("tool", "tool-result", "x")),
        ("function", "x", ("tool", "tool-result", "x")),
        ("function_call", '{"name": "f", "arguments": {"a": 1}}', ("assistant", "tool-call", 'f {"a":1}')),
        ("function_call", "f(1)", ("assistant", "tool-call", "f(1)")),
        ("human", "<think>no</think> <tool_call>{}</tool_call>", None),
    ],
)
def test_each_speaker_has_a_role(tmp_path: Path, name: str, value: str, expected: tuple[str, str, str] | None) -> None:
    found = turns(of_messages(tmp_path, {"from": name, "value": value}))
    assert found == [expected or ("user", "prose", value)]


@pytest.mark.parametrize(
    ("value", "prose", "calls", "left_out"),
    [
        ("<think>cut off", [], 0, ["thinking"]),
        ("<think>\n\n</think>", [], 0, ["empty"]),
        ("<think>a</think><tool_call>{'name': 'f'}</tool_call>", [], 1, ["thinking"]),
        ("say <tool_call> like this", ["say <tool_call> like this"], 0, []),
        (
            '<tool_call>{"name":"f","arguments":{}}</tool_call>\n<tool_call>{"name":"g","arguments":{}}</tool_call>',
            [],
            2,
            [],
        ),
        ("<think>a <tool_call>{}</tool_call></think>b", ["b"], 0, ["thinking"]),
        ("a<memory-context>x</memory-context>", ["a"], 0, ["injected context"]),
    ],
)
def test_tags_are_told_apart(tmp_path: Path, value: str, prose: list[str], calls: int, left_out: list[str]) -> None:
    items = of_messages(tmp_path, {"from": "gpt", "value": value})
    found = turns(items)
    assert [text for _, kind, text in found if kind == "prose"] == prose
    assert sum(kind == "tool-call" for _, kind, _ in found) == calls
    assert reasons(items) == left_out


def test_several_results_in_one_message_are_several_turns(tmp_path: Path) -> None:
    value = "".join(f'<tool_response>{{"name": "f", "content": "{i}"}}</tool_response>\n' for i in range(3))
    items = of_messages(tmp_path, {"from": "tool", "value": value})
    assert [text for _, _, text in turns(items)] == ["0", "1", "2"]
    assert len({item.origin for item in items if isinstance(item, Said)}) == 3


def test_thinking_is_kept_when_asked_for(tmp_path: Path) -> None:
    items = of_messages(tmp_path, {"from": "gpt", "value": "<think>a</think>b"}, options=ReadOptions(thinking=True))
    assert turns(items) == [("assistant", "prose", "a\n\nb")]


def test_what_is_no_message_is_told_and_the_rest_is_read(tmp_path: Path) -> None:
    bad = [None, {"from": "stranger", "value": "x"}, {"from": "gpt", "value": ["x"]}, {"from": "gpt", "value": None}]
    items = of_messages(tmp_path, *bad, {"from": "human", "value": "hi"})
    assert turns(items) == [("user", "prose", "hi")]
    assert reasons(items) == [
        "message 1 has no known speaker",
        "message 2 has no known speaker",
        "message 3 has no text",
        "empty",
    ]


def test_the_results_policy_does_not_change_origins(tmp_path: Path) -> None:
    message = {"from": "tool", "value": "x" * 3000}
    full = of_messages(tmp_path, message, options=ReadOptions(tool_results="full"))
    head = of_messages(tmp_path, message)
    assert [item.origin for item in full if isinstance(item, Said)] == [i.origin for i in head if isinstance(i, Said)]
