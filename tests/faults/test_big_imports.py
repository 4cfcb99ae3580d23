"""Large transcripts and killed imports: bounded memory, each turn once. The long form is for `make faults`."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from chatgpt_export import write_export
from claude_code_generator import Generator

from system import Cli, up

pytestmark = pytest.mark.faults

SEED = 20_273
KILLS = 3
MOST_MEMORY = 300 << 20
"""Bytes that the importing process may take."""
SHORTEST_RUN = 1.0
"""Seconds; about what the command takes to start."""


def write_claude_code(path: Path, size: int) -> int:
    """Turns in a Claude Code file of about this size."""
    return Generator(seed=SEED).write(path, size).kinds.total()


def write_chatgpt(path: Path, size: int) -> int:
    """Turns in a ChatGPT export of about this size."""
    counts = write_export(path, size, seed=SEED)
    return counts["prose"] + counts["tool-call"] + counts["tool-result"]


FORMATS = [
    pytest.param("session.jsonl", write_claude_code, id="claude-code"),
    pytest.param("conversations.json", write_chatgpt, id="chatgpt"),
]


@pytest.fixture
def system(tmp_path: Path) -> Iterator[Cli]:
    cli = Cli(tmp_path / "data", {"SCOPE_RECALL_WORKERS": "2"})
    with up(cli):
        yield cli


@pytest.mark.timeout(240)
@pytest.mark.parametrize(("name", "write"), FORMATS)
def test_an_import_that_is_killed_three_times_is_exact(
    system: Cli, tmp_path: Path, name: str, write: Callable[[Path, int], int]
) -> None:
    assert_exact(system, tmp_path / name, write, size=6 << 20, longest_run=2.0)


@pytest.mark.storm
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("name", "write"), FORMATS)
def test_an_import_of_gigabytes_that_is_killed_three_times_is_exact(
    system: Cli, tmp_path: Path, name: str, write: Callable[[Path, int], int]
) -> None:
    size = (2 << 30) if "jsonl" in name else (1 << 30)
    assert_exact(system, tmp_path / name, write, size=size, longest_run=60.0)


def assert_exact(system: Cli, path: Path, write: Callable[[Path, int], int], *, size: int, longest_run: float) -> None:
    rng = random.Random(SEED)
    turns = write(path, size)
    peaks = []
    for _ in range(KILLS):
        peaks.append(run_and_kill(system, path, rng.uniform(SHORTEST_RUN, longest_run)))
    started = time.monotonic()
    process = system.start("backfill", str(path), "--tenant", "big", "--json")
    peaks.append(watch(process.pid, lambda: process.poll() is None))
    assert process.stdout is not None
    report = json.loads(process.stdout.read())
    process.stdout.close()
    seconds = time.monotonic() - started
    drained = system.run("drain", "--json", timeout=3000)
    print(
        f"\n{path.name}: {path.stat().st_size >> 20:,} MiB, {turns:,} turns; last run {seconds:.0f} s, "
        f"{report['imported']:,} imported, {report['already_there']:,} already there; "
        f"peak memory {max(peaks) >> 20} MiB after {KILLS} kills"
    )
    assert process.returncode == 0
    assert drained.json == drained.json | {"drained": True, "turns": turns, "dead": 0}
    assert max(peaks) < MOST_MEMORY
    again = system.run("backfill", str(path), "--tenant", "big", "--json")
    assert (again.json["imported"], again.json["files"][0]["unchanged"]) == (0, True)


def run_and_kill(system: Cli, path: Path, seconds: float) -> int:
    """kill -9 after that many seconds; returns the peak of its memory."""
    process = system.start("backfill", str(path), "--tenant", "big")
    until = time.monotonic() + seconds
    peak = watch(process.pid, lambda: time.monotonic() < until and process.poll() is None)
    process.kill()
    process.wait()
    assert process.stdout is not None
    process.stdout.close()
    return peak


def watch(pid: int, going_on: Callable[[], bool]) -> int:
    """The largest RSS seen while it goes on."""
    peak = 0
    process = psutil.Process(pid)
    while going_on():
        try:
            peak = max(peak, process.memory_info().rss)
        except psutil.NoSuchProcess:
            break
        time.sleep(0.02)
    return peak
