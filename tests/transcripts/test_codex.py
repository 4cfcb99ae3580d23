"""Codex rollouts: items and events that repeat each other, forks, sub-agents, old and new versions. Does I/O."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import zstandard
from hypothesis import HealthCheck, given, settings

from producers.transcripts import line_reading
from producers.transcripts.codex import CodexReader
from producers.transcripts.port import ReadOptions, Sample
from transcripts.codex_rollouts import FORK, ROOT, TURN_1, Rollout, conversation, fork
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

READER = CodexReader()
LINES = [dump([record]) for record in conversation()]
fuzzed = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def written(tmp_path: Path, records: list[dict[str, Any]], name: str = f"rollout-x-{ROOT}.jsonl") -> Path:
    path = tmp_path / name
    path.write_bytes(dump(records))
    return path


def test_each_thing_is_said_once_whether_item_or_event_comes_first(tmp_path: Path) -> None:
    items = read(READER, written(tmp_path, conversation()))
    assert turns(items) == [
        Turn(ROOT, "user", "prose", "Which port?", "16:00:05"),
        Turn(ROOT, "assistant", "tool-call", 'shell {"command": "ss -ltn"}', "16:00:09"),
        Turn(ROOT, "tool", "tool-result", "LISTEN 8443", "16:00:10"),
        Turn(ROOT, "assistant", "prose", "It is 8443.", "16:00:12"),
        Turn(ROOT, "user", "prose", "continue", "16:00:15"),
        Turn(ROOT, "assistant", "prose", "Done.", "16:00:17"),
        Turn(ROOT, "user", "prose", "continue", "16:00:18"),
        Turn(ROOT, "assistant", "prose", "Done.", "16:00:20"),
    ]
    assert left_out(items) == sorted(
        ["injected context"] * 2 + ["event"] * 2 + ["repeated as an event"] * 4 + ["thinking"]
    )
    assert bad(items) == []
    assert len({one.origin for one in said(items)}) == 8
    facts = {"cwd": "/srv/app", "git_branch": "main", "model": "gpt-x"}
    assert said(items)[2].metadata == {**facts, "tool": "shell", "call_id": "call_1"}


def test_a_file_with_events_only_and_one_with_items_only_say_the_same(tmp_path: Path) -> None:
    records = conversation()
    items_only = [record for record in records if record["type"] != "event_msg"]
    events_only = [record for record in records if record["payload"].get("type") != "message"]
    prose = [one.origin for one in said(read(READER, written(tmp_path, items_only))) if one.kind == "prose"]
    from_events = [one.origin for one in said(read(READER, written(tmp_path, events_only))) if one.kind == "prose"]
    assert from_events == [prose[0], prose[1], prose[2], prose[4]]  # "Done." has no event


def test_a_prompt_that_is_only_a_completed_item_is_kept(tmp_path: Path) -> None:
    r = Rollout()
    item = {"type": "UserMessage", "content": [{"type": "text", "text": "Fix it"}, {"type": "image", "url": "data:"}]}
    command = {"type": "CommandExecution", "command": ["ls"], "stdout": "again"}
    records = [
        r.meta(), r.message("user", "# AGENTS.md instructions for /srv\n\n<INSTRUCTIONS>x</INSTRUCTIONS>"),
        r.event("item_completed", turn_id=TURN_1, item=item), r.event("item_completed", item=command),
        r.event("item_completed", item={"type": "Plan", "text": "1. look"}), r.message("assistant", "Done"),
        r.event("item_completed", item={"type": "AgentMessage", "content": [{"type": "Text", "text": "Done"}]}),
    ]  # fmt: skip
    items = read(READER, written(tmp_path, records))
    assert [one.content for one in said(items)] == ["Fix it\n\n[image left out]", "1. look", "Done"]
    assert left_out(items) == ["event", "injected context", "repeated as an event"]


@pytest.mark.parametrize(
    ("texts", "kept", "reasons"),
    [
        (["<user_instructions>x</user_instructions>"], None, ["injected context"]),
        (["<turn_aborted>\nx\n</turn_aborted>", "go on"], "go on", ["injected context"]),
        (["<user_shell_command>\n<command>ls</command>\n</user_shell_command>"], None, ["local command"]),
        (["# Context from my IDE setup:\n\n## Open tabs:\n- a\n\n## My request for Codex:\nDo it\n"], "Do it",
         ["injected context"]),
        (["Write a ## My request for Codex: heading"], "Write a ## My request for Codex: heading", []),
        (["<recalled-memory>old</recalled-memory>\nnew"], "new", ["injected context"]),
        (["<image name=[Image #1]>", "</image>", "see"], "see", []),
        ([""], None, ["empty"]),
    ],
)  # fmt: skip
def test_what_the_program_sends_for_the_user_is_not_what_he_wrote(
    tmp_path: Path, texts: list[str], kept: str | None, reasons: list[str]
) -> None:
    r = Rollout()
    items = read(READER, written(tmp_path, [r.meta(), r.message("user", *texts)]))
    assert [one.content for one in said(items)] == ([kept] if kept else [])
    assert left_out(items) == reasons


def test_every_kind_of_call_and_result(tmp_path: Path) -> None:
    r = Rollout()
    text = {"type": "input_text", "text": "ok"}
    picture = {"type": "input_image", "image_url": "data:image/png;base64,aGk="}
    records = [
        r.meta(),
        r.line("response_item", type="custom_tool_call", name="apply_patch", input="*** Begin", call_id="c1"),
        r.line("response_item", type="custom_tool_call_output", call_id="c1", output=[text, picture]),
        r.line("response_item", type="local_shell_call", call_id="c2", action={"command": ["ls", "-l"]}),
        r.result("c2", {"content": "no such file", "success": False}),
        r.line("response_item", type="web_search_call", action={"type": "search", "query": "q"}),
        r.result("c9", '{"output": broken'),
        r.result("c9", ""),
        r.line("compacted", message="summary", replacement_history=[{"type": "message", "role": "user"}]),
        r.line("response_item", type="compaction", encrypted_content="x"),
        r.line("response_item", type="ghost_snapshot"),
    ]  # fmt: skip
    items = read(READER, written(tmp_path, records))
    assert [(one.kind, one.content, one.metadata.get("tool")) for one in said(items)] == [
        ("tool-call", "apply_patch *** Begin", "apply_patch"),
        ("tool-result", "ok\n\n[image left out]", "apply_patch"),
        ("tool-call", 'local_shell ["ls","-l"]', "local_shell"),
        ("tool-result", "no such file", "local_shell"),
        ("tool-call", 'web_search {"type":"search","query":"q"}', "web_search"),
        ("tool-result", '{"output": broken', None),
    ]
    assert said(items)[3].metadata["failed"] is True
    assert left_out(items) == ["compaction summary", "compaction summary", "empty tool result", "other record"]


def test_thinking_is_kept_on_request(tmp_path: Path) -> None:
    items = read(READER, written(tmp_path, conversation()), ReadOptions(thinking=True))
    assert "**Looking**" in [one.content for one in said(items)]


@pytest.mark.parametrize("turn_ids", [True, False])
def test_a_fork_has_the_origins_of_what_it_copied_and_no_times_for_it(tmp_path: Path, turn_ids: bool) -> None:
    history = conversation() if turn_ids else conversation(None, None)
    original = said(read(READER, written(tmp_path, history)))
    forked = said(read(READER, written(tmp_path, fork(history), name=f"rollout-x-{FORK}.jsonl")))
    assert [one.origin for one in forked[:8]] == [one.origin for one in original]
    assert {one.created_at for one in forked[:8]} == {None}
    assert [(one.session, one.content, one.created_at is not None) for one in forked[8:]] == [
        (FORK, "Now TLS", True),
        (FORK, "TLS is on.", True),
    ]
    assert forked[0].metadata["parent_session"] == ROOT
    assert not {one.origin for one in forked[8:]} & {one.origin for one in original}


def test_a_fork_that_keeps_the_first_conversations_id_is_named_by_its_file(tmp_path: Path) -> None:
    path = written(tmp_path, conversation(), name=f"rollout-2026-02-03-{ROOT}_{FORK}.jsonl")
    assert {one.session for one in said(read(READER, path))} == {FORK}


def test_a_sub_agent_that_copies_messages_without_calls_has_their_origins(tmp_path: Path) -> None:
    history = [record for record in conversation() if not str(record["payload"].get("type")).startswith("function")]
    source = {"subagent": {"thread_spawn": {"parent_thread_id": ROOT, "agent_nickname": "Boole"}}}
    records = fork(history)
    records[0]["payload"] |= {"forked_from_id": None, "source": source}
    original = [one.origin for one in said(read(READER, written(tmp_path, conversation()))) if one.kind == "prose"]
    copied = said(read(READER, written(tmp_path, records, name=f"rollout-x-{FORK}.jsonl")))
    assert [one.origin for one in copied[:6]] == original
    assert (copied[0].metadata["parent_session"], copied[0].metadata["agent"]) == (ROOT, "Boole")


def test_a_rollout_from_before_the_envelope_is_read(tmp_path: Path) -> None:
    records = [
        {"id": ROOT, "timestamp": "2025-06-01T10:00:00Z", "instructions": None},
        {"record_type": "state"},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]},
        {"type": "function_call", "name": "shell", "arguments": "{}", "call_id": "c"},
    ]
    path = written(tmp_path, records)
    assert READER.recognises(Sample(path, path.read_bytes()))
    assert turns(read(READER, path)) == [
        Turn(ROOT, "user", "prose", "hi", None),
        Turn(ROOT, "assistant", "tool-call", "shell {}", None),
    ]


def test_a_compressed_rollout_says_the_same(tmp_path: Path) -> None:
    plain = written(tmp_path, conversation())
    packed = tmp_path / f"{plain.name}.zst"
    packed.write_bytes(zstandard.ZstdCompressor().compress(plain.read_bytes()))
    assert said(read(READER, packed)) == said(read(READER, plain))


@pytest.mark.parametrize("records", [conversation(), conversation(None, None), fork(conversation())])
def test_reading_goes_on_from_every_mark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, records: list[dict[str, Any]]
) -> None:
    monkeypatch.setattr(line_reading, "LINES_PER_MARK", 1)
    assert_resumes_from_every_mark(READER, written(tmp_path, records))


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
    expected = {5: "Which port?", 9: 'shell {"command": "ss -ltn"}', 10: "LISTEN 8443", 13: "It is 8443."}
    assert [text for number, text in expected.items() if number not in touched and text not in found] == []
    assert found.count("continue") == 2 or touched & {15, 16, 18, 19}


@fuzzed
@given(other_value(fork(conversation())))
def test_any_json_in_place_of_any_value_is_read(tmp_path: Path, data: bytes) -> None:
    path = written(tmp_path, [])
    path.write_bytes(data)
    assert_survives(READER, path)


def test_places_that_hold_no_record_are_told(tmp_path: Path) -> None:
    path = written(tmp_path, [{"type": "response_item", "payload": 1}, {"x": 1}, {"type": "novelty", "payload": {}}])
    items = read(READER, path)
    assert bad(items) == [("line 1", "a record without a payload"), ("line 2", "a record without a type")]
    assert left_out(items) == ["other record"]


def test_the_format_is_told_by_content() -> None:
    assert READER.recognises(Sample(Path("x"), dump(conversation()[:1])))
    long = json.dumps(Rollout().meta(base_instructions="x" * 70_000), separators=(",", ":")).encode()
    assert READER.recognises(Sample(Path("x"), long[: 64 << 10]))
    for other in (b"", b"\xff", b'{"type": "session_meta"}', b'{"type": "user", "id": "x"}', json.dumps([1]).encode()):
        assert not READER.recognises(Sample(Path("x"), other))
