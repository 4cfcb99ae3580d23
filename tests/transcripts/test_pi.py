"""Sessions of Pi and OpenClaw: both versions, branches, retries, what a channel adds. Does I/O."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from producers.transcripts import line_reading
from producers.transcripts.pi import PiReader
from producers.transcripts.port import ReadOptions, Sample
from transcripts.reader_checks import (
    Turn,
    assert_grows_without_loss,
    assert_resumes_from_every_mark,
    assert_survives,
    bad,
    damage,
    dump,
    left_out,
    other_value,
    read,
    said,
    turns,
)

READER = PiReader()
SESSION = "d703a1a9-0000-4000-8000-000000000001"
BEGIN_MS = 1_763_681_600_000
"""2025-11-20 23:33:20 UTC."""
fuzzed = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def header(identifier: str = SESSION, **fields: Any) -> dict[str, Any]:
    return {"type": "session", "id": identifier, "timestamp": "2025-11-20T23:33:20.000Z", "cwd": "/srv/app", **fields}


def message(second: int, role: str, *blocks: dict[str, Any] | str, **fields: Any) -> dict[str, Any]:
    """A version 1 entry."""
    content = [{"type": "text", "text": block} if isinstance(block, str) else block for block in blocks]
    inner = {"role": role, "content": content, "timestamp": BEGIN_MS + second * 1000, **fields}
    return {"type": "message", "timestamp": "2025-11-20T23:59:59.000Z", "message": inner}


def call(identifier: str, name: str, **arguments: Any) -> dict[str, Any]:
    return {"type": "toolCall", "id": identifier, "name": name, "arguments": arguments}


def conversation() -> list[dict[str, Any]]:
    return [
        header(),
        message(1, "user", "Read the docs"),
        {"type": "model_change", "timestamp": "2025-11-20T23:33:22.000Z", "modelId": "m"},
        message(2, "assistant", {"type": "thinking", "thinking": "hm"}, "I will.", call("t1", "read", path="a.md"),
                call("t2", "bash", command="ls"), model="claude-x", stopReason="toolUse"),
        message(3, "toolResult", "contents", toolCallId="t1", toolName="read", isError=False),
        message(4, "toolResult", "denied", {"type": "image", "mimeType": "image/png", "data": "aGk="},
                toolCallId="t2", toolName="bash", isError=True),
        message(5, "assistant", "Read.", model="claude-x"),
    ]  # fmt: skip


def as_version_3(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """As Pi takes over an old file."""
    head = {**records[0], "version": 3}
    rest = [
        {**one, "id": f"{number:08x}", "parentId": f"{number - 1:08x}"} for number, one in enumerate(records[1:], 1)
    ]
    return [head, *rest]


LINES = [dump([record]) for record in conversation()]


def written(
    tmp_path: Path, records: list[dict[str, Any]], name: str = f"2025-11-20T23-33-20-000Z_{SESSION}.jsonl"
) -> Path:
    path = tmp_path / name
    path.write_bytes(dump(records))
    return path


def test_a_session_is_read_in_its_order(tmp_path: Path) -> None:
    items = read(READER, written(tmp_path, conversation()))
    assert turns(items) == [
        Turn(SESSION, "user", "prose", "Read the docs", "23:33:21"),
        Turn(SESSION, "assistant", "prose", "I will.", "23:33:22"),
        Turn(SESSION, "assistant", "tool-call", 'read {"path":"a.md"}', "23:33:22"),
        Turn(SESSION, "assistant", "tool-call", 'bash {"command":"ls"}', "23:33:22"),
        Turn(SESSION, "tool", "tool-result", "contents", "23:33:23"),
        Turn(SESSION, "tool", "tool-result", "denied\n[image left out: image/png]", "23:33:24"),
        Turn(SESSION, "assistant", "prose", "Read.", "23:33:25"),
    ]
    assert left_out(items) == ["settings", "thinking"]
    assert said(items)[5].metadata == {"cwd": "/srv/app", "tool": "bash", "call_id": "t2", "failed": True}
    assert said(items)[6].metadata == {"cwd": "/srv/app", "model": "claude-x"}


def test_version_3_and_branches_have_the_origins_of_version_1(tmp_path: Path) -> None:
    original = said(read(READER, written(tmp_path, conversation())))
    taken_over = said(read(READER, written(tmp_path, as_version_3(conversation()))))
    assert taken_over == original
    parent = f"/home/u/.pi/agent/sessions/--srv-app--/2025-11-20T23-33-20-000Z_{SESSION}.jsonl"
    branch = said(read(READER, written(tmp_path, [header("other", parentSession=parent), *conversation()[1:4]])))
    assert [one.origin for one in branch] == [one.origin for one in original[:4]]
    assert {(one.session, one.metadata["parent_session"]) for one in branch} == {("other", SESSION)}
    assert len({one.origin for one in original}) == len(original)


def test_the_origin_does_not_depend_on_what_is_kept(tmp_path: Path) -> None:
    path = written(tmp_path, conversation())
    kept = said(read(READER, path, ReadOptions(thinking=True, tool_results="full")))
    assert kept[1].content == "hm\n\nI will."
    cut = said(read(READER, path, ReadOptions(tool_result_chars=2)))
    assert [one.origin for one in kept] == [one.origin for one in cut]


def test_a_prompt_that_is_tried_again_is_one_turn(tmp_path: Path) -> None:
    failed: dict[str, Any] = {"stopReason": "error", "errorMessage": "overloaded"}
    records = [
        header(), message(1, "user", "go"), message(2, "assistant", **failed),
        message(3, "user", "go"), message(4, "assistant", {"type": "thinking", "thinking": "x"}, **failed),
        message(5, "user", "go"), message(6, "assistant", "Done."), message(7, "user", "go"),
    ]  # fmt: skip
    items = read(READER, written(tmp_path, records))
    assert [turn.content for turn in turns(items)] == ["go", "Done.", "go"]
    assert left_out(items) == ["empty", "repeated prompt", "repeated prompt", "thinking"]


@pytest.mark.parametrize(
    ("text", "kept", "reasons"),
    [
        ('Sender (untrusted metadata):\n```json\n{"name": "A"}\n```\n\nhello', "hello", ["injected context"]),
        ("Conversation info (untrusted metadata):\n```json\n{}\n```\n\n"
         "Replied message (untrusted, for context):\n```json\n{}\n```\n\n[Wed 2026-02-18 22:04 GMT+1] hi", "hi",
         ["injected context"] * 2),
        ("<recalled-memory>\nold\n</recalled-memory>\nnew", "new", ["injected context"]),
        ("Sender (untrusted metadata): what is it?", "Sender (untrusted metadata): what is it?", []),
        ("[Wed] x", "[Wed] x", []),
    ],
)  # fmt: skip
def test_what_a_channel_adds_is_not_what_was_written(tmp_path: Path, text: str, kept: str, reasons: list[str]) -> None:
    items = read(READER, written(tmp_path, [header(), message(1, "user", text)]))
    assert [one.content for one in said(items)] == [kept]
    assert left_out(items) == reasons


def test_records_that_are_no_conversation_are_counted_by_reason(tmp_path: Path) -> None:
    records = [
        header(), {"type": "session_info", "name": "Docs"}, {"type": "compaction", "summary": "x"},
        {"type": "custom_message", "content": "x"}, message(1, "bashExecution", command="ls"),
        message(2, "compactionSummary", "x"), {"type": "message", "message": 1}, {"no": "type"},
        message(3, "toolResult", " "), message(4, "user", "hi"),
    ]  # fmt: skip
    items = read(READER, written(tmp_path, records))
    assert left_out(items) == sorted([
        "other record", "compaction summary", "injected context", "local command", "compaction summary",
        "empty tool result",
    ])  # fmt: skip
    assert bad(items) == [("line 7", "a message without content"), ("line 8", "a record without a type")]
    assert said(items)[0].metadata["title"] == "Docs"


def test_the_session_of_a_file_without_header_is_in_its_name(tmp_path: Path) -> None:
    assert turns(read(READER, written(tmp_path, conversation()[1:])))[0].session == SESSION


def test_reading_goes_on_from_every_mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_reading, "LINES_PER_MARK", 1)
    again = [message(8, "user", "x"), message(9, "assistant"), message(10, "user", "x")]
    assert_resumes_from_every_mark(READER, written(tmp_path, [*conversation(), *again]))


def test_a_file_that_grows_says_everything_and_nothing_twice(tmp_path: Path) -> None:
    whole = said(read(READER, written(tmp_path, conversation())))
    assert assert_grows_without_loss(READER, written(tmp_path, []), LINES) == whole


@fuzzed
@given(damage(LINES))
def test_damage_takes_no_more_than_the_lines_it_touches(tmp_path: Path, damaged: tuple[bytes, set[int]]) -> None:
    data, touched = damaged
    path = written(tmp_path, [])
    path.write_bytes(data)
    found = [one.content for one in said(assert_survives(READER, path))]
    expected = {2: "Read the docs", 4: 'read {"path":"a.md"}', 5: "contents", 7: "Read."}
    assert [text for number, text in expected.items() if number not in touched and text not in found] == []


@fuzzed
@given(other_value(conversation()))
def test_any_json_in_place_of_any_value_is_read(tmp_path: Path, data: bytes) -> None:
    path = written(tmp_path, [])
    path.write_bytes(data)
    assert_survives(READER, path)


def test_the_format_is_told_by_content() -> None:
    assert READER.recognises(Sample(Path("x"), dump(conversation()[:2])))
    for other in (b"", b"\xff", b'{"type": "session"}', b'{"type": "user", "id": "x", "timestamp": 1}', b"[1]"):
        assert not READER.recognises(Sample(Path("x"), other))
