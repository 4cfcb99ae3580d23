"""Starting and stopping: what is left behind, what survives, and what works without Redis."""

from __future__ import annotations

import signal
from pathlib import Path

import psutil
import pytest

from system import Cli, stop

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(200)]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_up_stops_cleanly_leaves_nothing_behind_and_keeps_what_was_pushed(tmp_path: Path, number: int) -> None:
    cli = Cli(tmp_path / "data")
    process = cli.start("up")
    cli.wait_ready(process)
    family = psutil.Process(process.pid).children(recursive=True)
    assert len(family) == 5
    pushed = cli.push(
        [{"session_id": "s", "turn_index": 0, "role": "user", "content": "the heron waits", "tenant": "t"}]
    )
    assert pushed.json["accepted"] == 1
    assert cli.run("drain").code == 0
    assert stop(process, number) == 0
    _, alive = psutil.wait_procs(family, timeout=5)
    assert not alive
    assert not (cli.data_dir / "redis.sock").exists()
    assert not (cli.data_dir / "up.json").exists()

    hits = cli.recalled("heron", "t")
    assert [hit["content"] for hit in hits] == ["the heron waits"], "recall needs no Redis"
    kept = cli.run("push", "-", stdin=b'{"session_id":"s","turn_index":1,"role":"user","content":"x","tenant":"t"}')
    assert kept.code == 0
    assert "accepted 1 (1 of them spooled on this machine until Redis returns)" in kept.out
    assert "warning" in kept.err
    assert "scope-recall up" in kept.err
    for command in (["drain"], ["dead", "list"]):
        result = cli.run(*command)
        assert result.code == 2
        assert "scope-recall up" in result.err
    status = cli.run("status", "--json")
    assert status.code == 1
    assert status.json["catalog"]["turns"] == 1
    assert (status.json["spool"]["files"], status.json["spool"]["events"]) == (1, 1)
    assert "no Redis at" in status.json["degraded"][0]
    assert "1 accepted turns wait" in status.json["degraded"][1]


def test_turns_pushed_before_and_after_a_stop_are_stored_by_the_next_up(tmp_path: Path) -> None:
    cli = Cli(tmp_path / "data")
    process = cli.start("up")
    cli.wait_ready(process)
    events = [
        {"session_id": "s", "turn_index": n, "role": "user", "content": f"turn number {n}", "tenant": "t"}
        for n in range(3000)
    ]
    assert cli.push(events[:2000]).json["accepted"] == 2000
    assert stop(process) == 0
    pushed = cli.push(events[2000:])
    assert (pushed.code, pushed.json["accepted"], pushed.json["spooled"]) == (0, 1000, 1000)
    process = cli.start("up")
    cli.wait_ready(process)
    assert cli.run("drain").code == 0
    status = cli.run("status", "--json").json
    assert stop(process) == 0
    assert (status["catalog"]["turns"], status["vectors"]["rows"]) == (3000, 3000)
    assert status["streams"]["live"]["length"] == 0
    assert status["spool"] == {"files": 0, "events": 0, "bytes": 0}
