"""What Claude Code's transcripts say: messages on several lines, side chains, commands, injected text. Does I/O."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from producers.transcripts.claude_code import ClaudeCodeReader
from producers.transcripts.port import LeftOut, Mark, ReadOptions, Sample, Unreadable
from transcripts.claude_code_records import SESSION, Writer, call, image, text, thinking
from transcripts.reader_checks import Turn, bad, dump, left_out, read, said, turns

READER = ClaudeCodeReader()


def written(tmp_path: Path, *records: dict[str, Any], name: str = f"{SESSION}.jsonl") -> Path:
    path = tmp_path / name
    path.write_bytes(dump(records))
    return path


def conversation() -> list[dict[str, Any]]:
    """One of each kind, with a message on six lines and results between them."""
    w = Writer()
    return [
        {"type": "file-history-snapshot", "messageId": "1111-0002", "snapshot": {}, "isSnapshotUpdate": False},
        w.record("progress", data={"type": "hook_progress"}),
        w.user("Which port?"),
        w.assistant("m1", thinking()),
        w.assistant("m1", text("I will look.")),
        w.assistant("m1", call("c1", command="ss -ltn")),
        w.result("c1", "LISTEN 8443"),
        w.assistant("m1", call("c2", "Read", path="/etc/proxy")),
        w.assistant("m1", text("And in the file.")),
        w.record("progress", data={"type": "hook_progress"}),
        w.result("c2", [text("port = 8443"), image()], is_error=True),
        w.assistant("m2", text("It is 8443.")),
        w.record("system", subtype="turn_duration"),
        w.user([text("Thanks"), image("image/jpeg")]),
    ]


def test_a_message_on_several_lines_is_one_turn_followed_by_its_calls(tmp_path: Path) -> None:
    items = read(READER, written(tmp_path, *conversation()))
    assert turns(items) == [
        Turn(SESSION, "user", "prose", "Which port?", "10:00:02"),
        Turn(SESSION, "assistant", "prose", "I will look.\n\nAnd in the file.", "10:00:04"),
        Turn(SESSION, "assistant", "tool-call", 'Bash {"command":"ss -ltn"}', "10:00:05"),
        Turn(SESSION, "tool", "tool-result", "LISTEN 8443", "10:00:06"),
        Turn(SESSION, "assistant", "tool-call", 'Read {"path":"/etc/proxy"}', "10:00:07"),
        Turn(SESSION, "tool", "tool-result", "port = 8443\n[image left out: image/png]", "10:00:10"),
        Turn(SESSION, "assistant", "prose", "It is 8443.", "10:00:11"),
        Turn(SESSION, "user", "prose", "Thanks\n\n[image left out: image/jpeg]", "10:00:13"),
    ]
    assert left_out(items) == ["file history", "progress", "progress", "system record", "thinking"]
    assert bad(items) == []
    assert [one.origin for one in said(items)] == [
        "1111-0002", "1111-0004", "1111-0005#0", "1111-0006#0", "1111-0007#0", "1111-0010#0", "1111-0011", "1111-0013"
    ]  # fmt: skip
    common = {"cwd": "/srv/app", "git_branch": "main"}
    assert said(items)[5].metadata == {**common, "tool": "Read", "call_id": "c2", "failed": True}
    assert said(items)[6].metadata == {**common, "model": "claude-x"}


def test_thinking_is_kept_on_request_and_marked_between_prose_otherwise(tmp_path: Path) -> None:
    w = Writer()
    path = written(tmp_path, w.assistant("m", thinking("first"), text("a"), thinking("then"), text("b"), thinking()))
    assert turns(read(READER, path))[0].content == "a\n\n[thinking left out]\n\nb"
    kept = read(READER, path, ReadOptions(thinking=True))
    assert turns(kept)[0].content == "first\n\na\n\nthen\n\nb\n\nhm"
    assert said(kept)[0].origin == said(read(READER, path))[0].origin


def test_the_origin_of_prose_does_not_depend_on_thinking_on_an_earlier_line(tmp_path: Path) -> None:
    w = Writer()
    path = written(tmp_path, w.assistant("m", thinking()), w.assistant("m", text("a")))
    assert {said(read(READER, path, ReadOptions(thinking=on)))[0].origin for on in (True, False)} == {"1111-0002"}


@pytest.mark.parametrize(
    ("policy", "contents", "reasons"),
    [
        ("full", ["0123456789"], ["empty tool result"]),
        ("head", ["0123\n[6 more characters left out]"], ["empty tool result"]),
        ("skip", [], ["empty tool result", "tool result"]),
    ],
)
def test_results_follow_the_policy(tmp_path: Path, policy: Any, contents: list[str], reasons: list[str]) -> None:
    w = Writer()
    path = written(tmp_path, w.result("c1", "0123456789"), w.result("c2", " \n"))
    items = read(READER, path, ReadOptions(tool_results=policy, tool_result_chars=4))
    assert [one.content for one in said(items)] == contents
    assert left_out(items) == reasons


def test_lines_of_two_sessions_and_two_side_chains_interleave(tmp_path: Path) -> None:
    a, b = Writer(), Writer("22222222-2222-4222-8222-222222222222")
    one, two = (Writer(begin=begin, isSidechain=True) for begin in (100, 200))
    records = [
        a.assistant("m1", text("a1")), b.assistant("m2", text("b1")),
        one.user("task one"), two.user("task two"),
        one.assistant("m3", text("one, ")), two.assistant("m4", call("c4")),
        a.assistant("m1", text("a2")), b.assistant("m2", call("c2")),
        one.assistant("m3", text("done")), two.result("c4", "fine"), two.assistant("m5", text("two done")),
        a.user("next"),
    ]  # fmt: skip
    items = read(READER, written(tmp_path, *records))
    chains = {
        SESSION: "a",
        b.session: "b",
        f"{SESSION}/sidechain-1111-0101": "1",
        f"{SESSION}/sidechain-1111-0201": "2",
    }
    found: dict[str, list[str]] = {}
    for one_turn in said(items):
        found.setdefault(chains[one_turn.session], []).append(one_turn.content)
    assert found == {
        "a": ["a1\n\na2", "next"],
        "b": ["b1", "Bash {}"],
        "1": ["task one", "one, \n\ndone"],
        "2": ["task two", "Bash {}", "fine", "two done"],
    }
    assert {one.metadata.get("parent_session") for one in said(items) if "sidechain" in one.session} == {SESSION}
    assert {one.metadata.get("parent_session") for one in said(items) if "sidechain" not in one.session} == {None}


def test_a_side_chain_whose_parent_is_lost_goes_on(tmp_path: Path) -> None:
    w = Writer(isSidechain=True)
    records = [w.user("task"), w.assistant("m", text("lost")), w.user("go on")]
    items = read(READER, written(tmp_path, records[0], records[2]))
    assert {turn.session for turn in turns(items)} == {f"{SESSION}/sidechain-1111-0001"}


def test_a_sub_agents_file_is_a_session_of_its_own(tmp_path: Path) -> None:
    w = Writer(isSidechain=True, agentId="aac57f5")
    (one,) = said(read(READER, written(tmp_path, w.user("Find the versions"), name="agent-aac57f5.jsonl")))
    assert one.session == f"{SESSION}/agent-aac57f5"
    assert one.metadata["parent_session"] == SESSION
    assert one.metadata["agent"] == "aac57f5"


def test_what_compacts_for_the_program_is_left_out_as_a_whole(tmp_path: Path) -> None:
    w = Writer(isSidechain=True, agentId="acompact-946d2b")
    path = written(tmp_path, w.user("Summarise"), w.assistant("m", text("x")), name="agent-acompact-946d2b.jsonl")
    assert read(READER, path) == [LeftOut("internal compaction"), Mark({}, 1.0)]
    assert left_out(read(READER, path.rename(tmp_path / "other.jsonl"))) == ["internal compaction"] * 2


@pytest.mark.parametrize(
    ("content", "kept", "reasons"),
    [
        ("<command-name>/mcp</command-name>\n<command-args></command-args>", None, ["local command"]),
        ("<command-message>x is running…</command-message>\n<command-name>/x</command-name>\n"
         "<command-args>update it</command-args>", "/x update it", []),
        ("<local-command-stdout>Reconnected.</local-command-stdout>", None, ["local command"]),
        ("<bash-input>ls</bash-input>", None, ["local command"]),
        ("a<system-reminder>x</system-reminder>b<system-reminder>y</system-reminder>", "ab", ["injected context"] * 2),
        ("<recalled-memory>\n[1] user\nold\n</recalled-memory>\n\nnew", "new", ["injected context"]),
        ("<system-reminder>never closed", None, ["injected context"]),
        ("what is <system-reminder> for?", "what is <system-reminder> for?", []),
        ("[Request interrupted by user for tool use]", None, ["interruption"]),
        (" \n", None, ["empty"]),
        ([], None, ["empty"]),
    ],
)  # fmt: skip
def test_what_the_program_sends_for_the_user_is_not_what_he_wrote(
    tmp_path: Path, content: Any, kept: str | None, reasons: list[str]
) -> None:
    items = read(READER, written(tmp_path, Writer().user(content)))
    assert [one.content for one in said(items)] == ([kept] if kept else [])
    assert left_out(items) == reasons


def test_records_that_are_no_conversation_are_counted_by_reason(tmp_path: Path) -> None:
    w = Writer()
    records = [
        w.user("Caveat", isMeta=True),
        w.user("This session is being continued", isCompactSummary=True),
        w.assistant("m", text("API Error"), isApiErrorMessage=True),
        {"type": "summary", "summary": "A title", "leafUuid": "1111-0001"},
        {"type": "queue-operation", "operation": "enqueue", "content": "/mcp"},
        w.record("attachment", attachment={"type": "hook_output", "content": "x"}),
        {"type": "novelty"},
        {"type": 7},
        w.record("user", message="nothing"),
    ]
    items = read(READER, written(tmp_path, *records))
    assert turns(items) == []
    assert left_out(items) == sorted([
        "injected context", "compaction summary", "synthetic message", "title", "queue operation", "injected context",
        "other record",
    ])  # fmt: skip
    assert bad(items) == [("line 8", "a record without a type"), ("line 9", "a message without content")]


def test_a_title_and_a_prompt_that_waited_are_kept(tmp_path: Path) -> None:
    w = Writer()
    title = {"type": "custom-title", "customTitle": "Ports", "sessionId": SESSION}
    queued = w.record(
        "attachment", attachment={"type": "queued_command", "prompt": "also TLS", "commandMode": "prompt"}
    )
    (one,) = said(read(READER, written(tmp_path, title, queued)))
    assert (one.role, one.content, one.metadata["title"]) == ("user", "also TLS", "Ports")


def test_a_copy_of_the_history_has_the_same_origins_under_another_session(tmp_path: Path) -> None:
    records = [record for record in conversation() if "uuid" in record]
    moved = [{**record, "sessionId": "copy"} for record in records]
    forked = [
        {**record, "uuid": f"new-{number}", "forkedFrom": {"sessionId": SESSION, "messageUuid": record["uuid"]}}
        for number, record in enumerate(records)
    ]
    origins = [one.origin for one in said(read(READER, written(tmp_path, *records)))]
    for copy in (moved, forked):
        assert [one.origin for one in said(read(READER, written(tmp_path, *copy)))] == origins


def test_a_line_that_stands_twice_in_a_message_does_not_double_its_text(tmp_path: Path) -> None:
    w = Writer()
    line = w.assistant("m", text("once"), call("c"))
    items = read(READER, written(tmp_path, line, line, w.assistant("m", text("more"))))
    assert [turn.content for turn in turns(items)] == ["once\n\nmore", "Bash {}"]
    assert left_out(items) == ["duplicate"]


def test_messages_without_ids_stay_apart_and_records_without_uuid_have_stable_origins(tmp_path: Path) -> None:
    records = [Writer().assistant("", text(word), uuid=None) for word in ("a", "b")]
    path = written(tmp_path, *records)
    first, second = read(READER, path), read(READER, path)
    assert [turn.content for turn in turns(first)] == ["a", "b"]
    assert first == second
    assert len({one.origin for one in said(first)}) == 2


def test_a_missing_time_stays_missing(tmp_path: Path) -> None:
    assert said(read(READER, written(tmp_path, Writer().user("x", timestamp=None))))[0].created_at is None


def test_a_trace_of_hermes_is_refused_with_the_reason(tmp_path: Path) -> None:
    path = written(tmp_path, Writer(version="hermes-agent").user("x"))
    with pytest.raises(Unreadable, match=r"state\.db"):
        read(READER, path)


def test_the_format_is_told_by_content() -> None:
    head = dump([{"type": "summary", "summary": "x", "leafUuid": "u"}, Writer().user("x")])
    assert READER.recognises(Sample(Path("x"), head))
    assert READER.recognises(Sample(Path("x"), b"\x00\n" + head[:-4]))
    long = json.dumps(Writer().user("x" * 70_000), separators=(",", ":")).encode()
    assert READER.recognises(Sample(Path("x"), long[: 64 << 10]))
    for other in (b"", b"\x00\xff", b'{"messages": []}', b'{"type": "session", "id": "x"}', b"[1]", b'{"type": [1]}'):
        assert not READER.recognises(Sample(Path("x"), other))
