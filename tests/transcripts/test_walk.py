"""The walk: each transcript once and in order; what cannot be read is told, what is none is passed."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from producers.transcripts.walk import Found, Passed, Trouble, Wanted, walk


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home folder with transcripts of several agents, and other things."""
    for name, content in {
        ".claude/projects/-srv-app/1.jsonl": "{}\n",
        ".claude/projects/-srv-app/1/subagents/agent-2.jsonl": "{}\n",
        ".claude/settings.md": "x",
        ".codex/sessions/2025/09/25/rollout-1.jsonl": "{}\n",
        ".codex/archived_sessions/rollout-0.jsonl.zst": "\x28",
        ".hermes/state.db": "SQLite format 3\0",
        ".hermes/state.db-wal": "x",
        ".hermes/state.db-shm": "x",
        ".hermes/profiles/work/state.db": "SQLite format 3\0",
        ".cache/x.jsonl": "{}\n",
        "app/node_modules/x/package.json": "{}",
        "app/main.py": "{}",
        "exports/conversations-000.json": "[]",
        "exports/conversations-001.json": "[]",
        "exports/no-ending": '\n {"a": 1}',
        "exports/picture": "PNG",
        "exports/.hidden.json": "{}",
    }.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return tmp_path


def found(*paths: Path, under: Path, wanted: Wanted = Wanted()) -> list[str]:
    return [str(step.path.relative_to(under)) for step in walk(paths, wanted) if isinstance(step, Found)]


def troubles(*paths: Path) -> dict[str, str]:
    return {step.path.name: step.reason for step in walk(paths) if isinstance(step, Trouble)}


def test_transcripts_of_all_agents_are_found_in_the_order_of_their_names(home: Path) -> None:
    assert found(home, under=home) == [
        ".claude/projects/-srv-app/1/subagents/agent-2.jsonl",
        ".claude/projects/-srv-app/1.jsonl",
        ".codex/archived_sessions/rollout-0.jsonl.zst",
        ".codex/sessions/2025/09/25/rollout-1.jsonl",
        ".hermes/profiles/work/state.db",
        ".hermes/state.db",
        "exports/conversations-000.json",
        "exports/conversations-001.json",
        "exports/no-ending",
    ]


def test_what_is_passed_has_a_reason(home: Path) -> None:
    passed = {str(step.path.relative_to(home)): step.reason for step in walk([home]) if isinstance(step, Passed)}
    assert passed == {
        ".cache": "cache",
        ".claude/settings.md": "no transcript",
        ".hermes/state.db-shm": "belongs to a database",
        ".hermes/state.db-wal": "belongs to a database",
        "app/main.py": "no transcript",
        "app/node_modules": "cache",
        "exports/.hidden.json": "hidden",
        "exports/picture": "no transcript",
    }


def test_a_file_that_a_person_names_is_taken_whatever_it_is_called(home: Path) -> None:
    named = home / "app/main.py"
    assert list(walk([named])) == [Found(named, named=True)]
    assert list(walk([home / ".cache"])) == [Found(home / ".cache/x.jsonl", named=False)]


def test_a_file_reached_twice_is_taken_once(home: Path) -> None:
    export = home / "exports/conversations-000.json"
    (home / "exports/link.json").symlink_to(export)
    (home / "exports/other").symlink_to(home / ".codex")
    os.link(export, home / "exports/hard.json")
    steps = list(walk([export, home / "exports", home / ".codex/sessions", export]))
    taken = [step.path.name for step in steps if isinstance(step, Found)]
    assert taken == [
        "conversations-000.json",
        "conversations-001.json",
        "no-ending",
        "rollout-0.jsonl.zst",
        "rollout-1.jsonl",
    ]
    again = [step.path.name for step in steps if isinstance(step, Passed) and "again" in step.reason]
    assert again == ["conversations-000.json", "hard.json", "link.json", "sessions", "conversations-000.json"]


def test_loops_and_dead_links_are_told(home: Path) -> None:
    (home / "exports/loop").symlink_to(home)
    (home / "exports/self").symlink_to(home / "exports/self")
    (home / "exports/dead").symlink_to(home / "gone")
    assert troubles(home, home / "nowhere") == {
        "loop": "is a symbolic link to a folder that it is in",
        "self": "is a symbolic link in a circle",
        "dead": "is a symbolic link to nothing",
        "nowhere": "no such file or directory",
    }


def test_sockets_fifos_and_devices_are_told_and_never_opened(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(home)  # the path of a socket must be short
    os.mkfifo("fifo.jsonl")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("socket.jsonl")
        told = troubles(Path(), Path("/dev/null"))
    assert told == {
        "fifo.jsonl": "is a FIFO, not a file",
        "socket.jsonl": "is a socket, not a file",
        "null": "is a device, not a file",
    }


def test_what_may_not_be_read_is_told_and_the_rest_is_walked(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    denied = {home / "exports", home / ".hermes/state.db"}  # a test that runs as root may read everything
    listdir, access = os.listdir, os.access

    def refusing(path: Path) -> list[str]:
        if path in denied:
            raise PermissionError(13, "Permission denied")
        return listdir(path)

    monkeypatch.setattr(os, "listdir", refusing)
    monkeypatch.setattr(os, "access", lambda path, mode: path not in denied and access(path, mode))
    assert troubles(home) == {"exports": "permission denied", "state.db": "permission denied"}
    assert len(found(home, under=home)) == 5


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (Wanted(include=["rollout-*"]), ["rollout-0.jsonl.zst", "rollout-1.jsonl"]),
        (Wanted(include=["*.db"], exclude=["profiles"]), ["state.db"]),
        (Wanted(include=["*/sessions/*.jsonl", "*-001.json"]), ["rollout-1.jsonl", "conversations-001.json"]),
        (Wanted(exclude=[".*", "no-*", "*-001.json"]), ["conversations-000.json"]),
    ],
)
def test_globs_choose_by_name_and_by_path(home: Path, wanted: Wanted, expected: list[str]) -> None:
    assert [Path(path).name for path in found(home, under=home, wanted=wanted)] == expected


def test_a_very_deep_folder_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for _ in range(600):  # more than a walk that calls itself would bear, and less than what pytest can remove
        Path("d").mkdir()
        monkeypatch.chdir("d")
    Path("x.jsonl").touch()
    monkeypatch.chdir(tmp_path)
    assert [type(step) for step in walk([Path("d")])] == [Found]
