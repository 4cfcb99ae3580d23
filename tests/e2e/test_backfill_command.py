"""`scope-recall backfill` as a person and a program use it."""

from __future__ import annotations

import fcntl
import json
import re
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from system import Cli, up

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(200)]


def write_lines(path: Path, records: Sequence[dict[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records), encoding="utf-8")
    return path


def claude(number: int, kind: str, content: Any, session: str = "c-1") -> dict[str, Any]:
    """A line of Claude Code's."""
    message = {"role": kind, "content": content} | ({"id": f"m{number}"} if kind == "assistant" else {})
    return {
        "type": kind,
        "uuid": f"00000000-0000-4000-8000-{number:012}",
        "parentUuid": None,
        "sessionId": session,
        "timestamp": f"2026-01-31T09:00:{number:02}.000Z",
        "isSidechain": False,
        "cwd": "/home/someone/app",
        "version": "2.1.0",
        "message": message,
    }


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """What agents left: two sessions, one of them resumed in a copy, and files that are no transcripts."""
    records = [
        claude(1, "user", "Which port does the heron proxy use?"),
        claude(2, "assistant", [{"type": "text", "text": "I look it up."},
                                {"type": "tool_use", "id": "t1", "name": "Grep", "input": {"pattern": "port"}}]),
        claude(3, "user", [{"type": "tool_result", "tool_use_id": "t1", "content": "heron.toml: port = 8443 " * 200}]),
        claude(4, "assistant", [{"type": "text", "text": "苍鹭代理监听 8443 端口。"}]),
    ]  # fmt: skip
    home = tmp_path / "home"
    write_lines(home / "projects" / "app" / "c-1.jsonl", records)
    write_lines(home / "projects" / "app" / "c-2.jsonl", [*records, claude(5, "user", "Thanks, heron expert.", "c-2")])
    write_lines(
        home / "chats.jsonl",
        [{"id": "g-1", "conversations": [{"from": "human", "value": "今天的苍鹭在哪里？"},
                                         {"from": "gpt", "value": "In the reeds."}]}],
    )  # fmt: skip
    (home / "README.md").write_text("no transcript")
    return home


def test_a_folder_is_imported_once_and_its_turns_are_recalled_by_what_they_are(running: Cli, folder: Path) -> None:
    dry = running.run("backfill", str(folder), "--tenant", "b1", "--dry-run", "--json")
    assert dry.code == 0, dry.out + dry.err
    assert (dry.json["imported"], dry.json["already_there"], len(dry.json["examples"])) == (8, 5, 5)
    assert running.run("drain").code == 0

    first = running.run("backfill", str(folder), "--tenant", "b1", "--agent", "old-agent", "--json")
    assert first.code == 0, first.out + first.err
    assert (first.json["imported"], first.json["already_there"], first.json["bad"]) == (8, 5, 0)
    assert {file["format"] for file in first.json["files"]} == {"claude-code", "sharegpt"}
    second = running.run("backfill", str(folder), "--tenant", "b1", "--json")
    assert (second.code, second.json["imported"], second.json["already_there"]) == (0, 0, 8)

    assert running.run("drain").code == 0
    hits = running.recalled("苍鹭代理监听哪个端口", "b1")
    assert hits[0]["content"] == "苍鹭代理监听 8443 端口。"
    assert hits[0]["source"] == "claude-code"
    assert hits[0]["created_at"].startswith("2026-01-31T09:00:04")
    (call,) = running.recalled("Grep port", "b1", "--tag", "tool-call")
    assert (call["role"], call["metadata"]["tool"]) == ("assistant", "Grep")
    (result,) = running.recalled("heron port", "b1", "--role", "tool")
    assert result["tags"] == ["tool-result"]
    assert "more characters left out" not in result["content"][:100]
    assert len(running.recalled("heron", "b1", "--agent", "old-agent", "-k", "20")) >= 4


def test_what_is_damaged_or_refused_is_named_and_the_rest_is_imported(running: Cli, folder: Path) -> None:
    damaged = folder / "projects" / "app" / "c-1.jsonl"
    damaged.write_bytes(damaged.read_bytes() + b'{"type":"user","uu\n')
    trace = claude(1, "user", "secret words", "t") | {"version": "hermes-agent"}
    write_lines(folder / "trace.jsonl", [trace])
    done = running.run("backfill", str(folder), "--tenant", "b2")
    assert done.code == 1
    assert "imported 8 turns" in done.out
    assert "c-1.jsonl, line 5: not valid JSON" in done.err
    assert "trace.jsonl" in done.err
    assert "--format trace" in done.err
    assert "secret words" not in done.err + done.out
    (folder / "other.json").write_text('{"of": "another program"}')
    again = running.run("backfill", str(folder), "--tenant", "b2", "--json")
    assert (again.code, again.json["bad"], again.json["imported"]) == (1, 2, 0)
    assert again.json["unknown"] == [str(folder / "other.json")]
    told = running.run("backfill", str(folder), "--tenant", "b2").err
    assert "c-1.jsonl: 1 bad place, told when they were read; --again --dry-run reads" in told
    assert "in no format that is known: " in told


def test_the_options_narrow_what_is_imported(running: Cli, folder: Path) -> None:
    cases = [
        (["--tool-results", "skip"], 7),
        (["--since", "2026-01-31T09:00:03Z"], 3),
        (["--until", "2026-01-31T09:00:02Z"], 1),
        (["--include", "chats.*"], 2),
        (["--exclude", "projects"], 2),
        (["--format", "claude-code", "--include", "c-*"], 6),
    ]
    for options, expected in cases:
        done = running.run("backfill", str(folder), "--tenant", "b3", "--dry-run", "--json", *options)
        assert done.json["imported"] == expected, options


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["no-such-folder"], "no-such-folder: no such file or folder"),
        ([".", "--since", "yesterday"], "--since 'yesterday': not a date"),
        ([".", "--since", "2026-02-01", "--until", "2026-01-01"], "is not before"),
        ([".", "--format", "word"], "'word' is not one of"),
        ([".", "--since", "2026-01-01T10:00"], "--since '2026-01-01T10:00' has no time zone; add an offset"),
        ([".", "--tenant", ""], "--tenant: "),
        ([".", "--tenant", "t" * 300], "--tenant: string should have at most 256 characters"),
        ([".", "--agent", "a" * 300], "--agent: string should have at most 256 characters"),
        ([".", "--rate", "nan"], "nan is no number"),
        ([".", "--rate", "1e-300"], "not in the range"),
    ],
)
def test_what_makes_no_sense_is_refused(running: Cli, arguments: list[str], named: str) -> None:
    refused = running.run("backfill", *arguments)
    assert refused.code == 2
    assert named in refused.err


def test_a_second_import_at_the_same_time_is_refused_with_the_pid_of_the_first(running: Cli, folder: Path) -> None:
    with (running.data_dir / "backfill.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        held.write("4711")
        held.flush()
        refused = running.run("backfill", str(folder), "--tenant", "b4")
    assert refused.code == 2
    assert "another import runs" in refused.err
    assert "pid 4711" in refused.err


def test_what_waits_for_redis_is_told(tmp_path: Path, folder: Path) -> None:
    cli = Cli(tmp_path / "data")
    cli.data_dir.mkdir()
    done = cli.run("backfill", str(folder))
    assert done.code == 0
    assert "imported 8 turns" in done.out
    assert "warning: 8 turns wait in" in done.err
    assert "no Redis at" in done.err
    counted = cli.run("backfill", str(folder), "--json").json
    assert (counted["imported"], counted["spooled"], counted["already_there"]) == (0, 0, 8)
    assert "8 turns wait in" in counted["warning"]
    with up(cli):
        other = cli.run("backfill", str(folder / "chats.jsonl"), "--tenant", "w", "--redis-url", "redis://127.0.0.1:1")
        assert "warning: 2 turns wait in" in other.err
        right = cli.run("backfill", str(folder / "chats.jsonl"), "--tenant", "w")
        assert "warning: 2 turns in" in right.err
        assert "wait for another Redis (redis://127.0.0.1:1, key prefix scope-recall). " in right.err
        assert "imported 2 turns" in cli.run("backfill", str(folder / "chats.jsonl"), "--tenant", "w", "--again").out


def test_an_import_that_is_interrupted_says_what_it_did(running: Cli, tmp_path: Path) -> None:
    records = [claude(number % 60, "user", f"question {number}") | {"uuid": f"u{number}"} for number in range(1500)]
    path = write_lines(tmp_path / "long.jsonl", records)
    process = running.start("backfill", str(path), "--tenant", "b5", "--rate", "100")
    deadline = time.monotonic() + 60
    while running.run("count", "question", "--tenant", "b5", "--json").json["turns"] == 0:
        assert time.monotonic() < deadline
        time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=30)
    assert process.returncode == 1
    imported = re.search(rb"imported ([\d,]+) turns", out)
    assert imported is not None
    assert 0 < int(imported[1].replace(b",", b"")) < 1500
    assert b"interrupted" in out


def test_nothing_is_made_where_nothing_is(tmp_path: Path, folder: Path) -> None:
    cli = Cli(tmp_path / "typo")
    refused = cli.run("backfill", str(folder))
    assert refused.code == 2
    assert "no data dir" in refused.err
    assert not cli.data_dir.exists()
