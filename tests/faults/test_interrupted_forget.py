"""Forgetting in a running system: while its tenant's turns are pushed, and with kill -9 of whoever is at it."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from background import Background
from producers.connection import connect
from producers.events import TurnEvent
from producers.settings import Settings, load_settings
from producers.stream import EventStream
from query.question import Question
from query.recall import Recaller
from stepped import turn
from system import Cli, up
from workers.stores.scope import Scope
from workers.supervision.tree_state import read_state

pytestmark = [pytest.mark.faults, pytest.mark.timeout(240)]

SESSIONS = 50
TURNS = 20
HIDDEN_SECONDS = 1.0
"""Until recall returns nothing of it; the command needs as long again to start on a machine that is not loaded."""
START_SECONDS = 10.0
KILLS = 3
SECOND_PUSH = 100_000
"""Turn index from which the second test pushes, so that no turn of the first is pushed again."""
SEED = 20_271


def said(session: int, index: int) -> TurnEvent:
    content = f"the kestrel-{session}-{index}-quartz flew over 证书{session}号第{index}次过期了"
    return turn(content, index, tenant="acme", session_id=f"s{session}")


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Cli, Settings]]:
    """A system that is up with two workers and has 50 sessions of one tenant."""
    cli = Cli(tmp_path_factory.mktemp("system") / "data")
    with up(cli, "--workers", "2"):
        settings = load_settings(data_dir=cli.data_dir, embedder="hashing", reranker="none")
        with EventStream(settings) as stream:
            stream.append(said(session, index) for session in range(SESSIONS) for index in range(TURNS))
        assert cli.run("drain").code == 0
        yield cli, settings


class Pushing(Background):
    """A thread that pushes turns of the other sessions until it is stopped."""

    def __init__(self, settings: Settings, first: int = 1000) -> None:
        self._first = first
        self._settings = settings
        super().__init__(self._run)
        self.pushed = 0

    def _run(self) -> None:
        with EventStream(self._settings) as stream:
            while not self.stop.wait(0.01):
                batch = range(self.pushed, self.pushed + 20)
                stream.append(said(10 + n % 20, self._first + n) for n in batch)
                self.pushed = batch.stop


def bytes_left(settings: Settings, session: int) -> list[str]:
    """Files and Redis keys that hold a turn of the session."""
    texts = [f"kestrel-{session}-{index}-quartz".encode() for index in range(TURNS)]
    texts.append(f"证书{session}号".encode())
    # As a process: to close a file of SQLite's in this one would give up the locks of the catalogs that are open in it.
    patterns = [option for text in texts for option in ("-e", text.decode())]
    grep = ["grep", "-rlaF", "-D", "skip", *patterns, "."]
    answer = subprocess.run(grep, cwd=settings.data_dir, capture_output=True, text=True, check=False)
    found = answer.stdout.splitlines()
    with connect(settings) as client:
        server: Any = client
        for key in server.keys("*"):
            readers: dict[bytes, Callable[[Any], Any]] = {
                b"stream": server.xrange,
                b"hash": server.hgetall,
                b"set": server.smembers,
                b"zset": lambda key: server.zrange(key, 0, -1),
                b"list": lambda key: server.lrange(key, 0, -1),
            }
            value = str(readers.get(server.type(key), server.get)(key))
            found += [str(key)] if any(text.decode() in value or str(text)[2:-1] in value for text in texts) else []
    return found


def sessions_recalled(recaller: Recaller, session: int) -> set[str]:
    answer = recaller.recall(Question(f"kestrel-{session}-7-quartz", Scope("acme"), k=50))
    return {hit.session_id for hit in answer.hits}


def test_a_session_among_fifty_is_gone_within_a_second_while_its_tenant_pushes(running: tuple[Cli, Settings]) -> None:
    cli, settings = running
    recaller = Recaller.open(settings)
    assert "s7" in sessions_recalled(recaller, 7)
    assert bytes_left(settings, 7), "the search finds what is there"
    with Pushing(settings) as pushing:
        forgetting = cli.start("forget", "--tenant", "acme", "--session", "s7", "--json")
        marker = settings.data_dir / "forgetting" / "1.json"  # written as the tombstone is
        deadline = time.monotonic() + START_SECONDS
        while not marker.exists():
            assert time.monotonic() < deadline
            time.sleep(0.01)
        began = time.monotonic()
        while "s7" in sessions_recalled(recaller, 7):
            assert time.monotonic() - began < HIDDEN_SECONDS
        assert forgetting.stdout is not None
        out = forgetting.stdout.read()
        forgetting.stdout.close()
        assert forgetting.wait(60) == 0
        report = json.loads(out)
        assert (report["turns"], report["verified"], report["found"]) == (TURNS, True, [])
        assert report["searched"]["pieces"] > 0
        assert bytes_left(settings, 7) == []
        assert "s7" not in sessions_recalled(recaller, 7)
    assert pushing.pushed > 0
    drained = cli.run("drain", "--json")
    assert drained.json["turns"] == (SESSIONS - 1) * TURNS + pushing.pushed
    assert bytes_left(settings, 7) == []
    assert "s8" in sessions_recalled(recaller, 8)


def test_a_forget_that_is_killed_at_any_moment_is_finished_by_the_next(running: tuple[Cli, Settings]) -> None:
    cli, settings = running
    rng = random.Random(SEED)
    before = cli.run("status", "--json").json["catalog"]["turns"]
    with Pushing(settings, first=SECOND_PUSH) as pushing:
        for session in range(KILLS):
            process = cli.start("forget", "--tenant", "acme", "--session", f"s{session}")
            time.sleep(rng.uniform(0.8, 3.0))
            process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()
            tree = read_state(settings.data_dir)
            assert tree is not None
            workers = [child.process for child in tree.children if child.name.startswith("worker") and child.process]
            os.kill(rng.choice(workers).pid, signal.SIGKILL)  # also when it is writing, and holds a lock
        assert cli.run("forget", "--resume").code == 0
    left = cli.run("forget", "--tenant", "acme", "--session", "s0", "--json")
    assert (left.code, left.json["verified"]) == (0, True), left.out + left.err
    drained = cli.run("drain", "--json")
    recaller = Recaller.open(settings)
    # One that was killed before its first step has changed nothing at all.
    gone = [session for session in range(KILLS) if f"s{session}" not in sessions_recalled(recaller, session)]
    assert 0 in gone
    assert [session for session in gone if bytes_left(settings, session)] == []
    assert drained.json["turns"] == before - len(gone) * TURNS + pushing.pushed
    assert not any("forget" in line for line in cli.run("status", "--json").json["degraded"])
