"""Changing the model in a running system, while it is pushed to and asked, and with kill -9 of whoever is at it."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Self

import pytest

from background import Background
from producers.events import TurnEvent
from producers.settings import Settings, load_settings
from producers.stream import EventStream
from query.question import Question
from query.recall import Recaller
from stepped import turn
from system import Cli, up
from workers.stores.catalog import Catalog
from workers.stores.scope import Scope
from workers.stores.space import Space
from workers.stores.vectors import VectorStore
from workers.supervision.tree_state import read_state

pytestmark = [pytest.mark.faults, pytest.mark.timeout(300)]

TURNS = 3_000
RATE = 600
"""Turns a second that are re-embedded: five seconds in all, in which to kill."""
KILLS = 3
SEED = 20_305
SECONDS = 120.0
SHORT_LEASE = """
import sys
from workers.maintenance import lease
lease.LEASE_SECONDS = 1.0
from query.cli import main
main(sys.argv[1:])
"""
"""A killed holder keeps the next one out for a second instead of thirty."""


def said(number: int) -> TurnEvent:
    return turn(f"the kestrel{number} flew over the weir and saw {number % 97} herons 证书{number}", number, tenant="t")


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    never = {f"SCOPE_RECALL_{name}_CRON": "0 0 1 1 *" for name in ("REEMBED",)}
    return Cli(tmp_path / "data", never)


@pytest.fixture
def running(cli: Cli) -> Iterator[tuple[Cli, Settings]]:
    with up(cli, "--workers", "2"):
        settings = load_settings(data_dir=cli.data_dir, embedder="hashing", reranker="none")
        with EventStream(settings) as stream:
            stream.append(said(number) for number in range(TURNS))
        assert cli.run("drain").code == 0
        yield cli, settings


class Going(Background):
    """Threads that push new turns and ask for old ones until the end of the block."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(lambda: self._run(self._push), lambda: self._run(self._ask))
        self._settings = settings
        self.pushed = 0
        self.asked = 0
        self.missed: list[str] = []
        self.embedders: set[str] = set()

    def __enter__(self) -> Self:
        self._recaller = Recaller.open(self._settings)
        return super().__enter__()

    def _run(self, step: Callable[[], None]) -> None:
        while not self.stop.is_set():
            step()
            time.sleep(0.05)

    def _push(self) -> None:
        with EventStream(self._settings) as stream:
            stream.append(said(TURNS + self.pushed + n) for n in range(5))
        self.pushed += 5

    def _ask(self) -> None:
        number = self.asked * 37 % TURNS
        self.asked += 1
        try:
            answer = self._recaller.recall(Question(f"kestrel{number} 证书{number}", Scope("t"), k=5))
        except Exception as error:  # noqa: BLE001  # every failed recall counts
            self.missed.append(f"{number}: {type(error).__name__}: {error}")
            return
        self.embedders.add(answer.embedder)
        if answer.degraded or number not in {hit.turn_index for hit in answer.hits}:
            self.missed.append(f"{number}: {[hit.turn_index for hit in answer.hits]}, {answer.degraded}")


def exact(settings: Settings, turns: int) -> dict[str, Space]:
    """Every space holds every turn once in both stores; returns them by state."""
    with closing(Catalog.open(settings.catalog_location)) as catalog:
        spaces = {one.state: one.space for one in catalog.spaces.all()}
        for space in spaces.values():
            assert catalog.filling.filled_and_turns(space) == (turns, turns)
            stored = sorted(VectorStore(settings.vectors_location).keys(space))
            assert stored == list(catalog.vector_ids(space)), space
            assert len(stored) == turns
        assert catalog.counts().pending == 0
    return spaces  # type: ignore[return-value]  # a state is a string


def start(cli: Cli, *arguments: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-P", "-c", SHORT_LEASE, "reembed", *arguments]
    return subprocess.Popen(
        command, env=cli.full_environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )


def said_by(process: subprocess.Popen[bytes]) -> str:
    out, _ = process.communicate(timeout=SECONDS)
    return out.decode()


def wait_until(true: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + SECONDS
    while not true():
        assert time.monotonic() < deadline, f"not in time: {what}"
        time.sleep(0.1)


def test_a_reembedding_that_is_killed_three_times_goes_on_and_nothing_is_missing(
    running: tuple[Cli, Settings],
) -> None:
    cli, settings = running
    rng = random.Random(SEED)
    with Going(settings) as going, closing(Catalog.open(settings.catalog_location)) as catalog:
        for _ in range(KILLS):
            process = start(cli, "--model", "hashing:128", "--rate", str(RATE))
            building = catalog.spaces.building
            before = catalog.filling.filled_and_turns(one.space)[0] if (one := building()) else 0

            def has_begun(before: int = before) -> bool:
                one = catalog.spaces.building()
                return one is not None and catalog.filling.filled_and_turns(one.space)[0] > before

            wait_until(has_begun, "a killed one has brought something in")
            time.sleep(rng.uniform(0, 0.7))
            process.kill()
            said_by(process)
            assert catalog.spaces.building() is not None, "killed in the middle"
            time.sleep(1.0)
        last = start(cli, "--model", "hashing:128", "--json")
        out = said_by(last)
        assert last.returncode == 0, out
        wait_until(lambda: "hashing-v1-128" in going.embedders, "a running recaller has followed the switch")
    assert cli.run("drain").code == 0
    assert going.missed == []
    assert going.embedders == {"hashing-v1", "hashing-v1-128"}
    spaces = exact(settings, TURNS + going.pushed)
    assert spaces["active"].embedder == "hashing-v1-128"
    status = cli.run("status", "--json").json
    assert [(one["state"], one["embedder"]) for one in status["spaces"]] == [
        ("active", "hashing-v1-128"),
        ("standby", "hashing-v1"),
    ]
    assert cli.run("reembed", "--rollback").code == 0
    assert exact(settings, TURNS + going.pushed)["active"].embedder == "hashing-v1"


@pytest.mark.storm
def test_what_a_killed_command_has_begun_the_maintenance_worker_ends_and_drops(tmp_path: Path) -> None:
    """Its lease runs out, and a kill of the maintenance worker only delays the end."""
    cli = Cli(tmp_path / "data", {"SCOPE_RECALL_REEMBED_CRON": "* * * * * */2", "SCOPE_RECALL_REEMBED_RATE": "200"})
    rng = random.Random(SEED)
    with up(cli, "--workers", "2"):
        settings = load_settings(data_dir=cli.data_dir, embedder="hashing", reranker="none")
        with EventStream(settings) as stream:
            stream.append(said(number) for number in range(TURNS))
        assert cli.run("drain").code == 0
        with Going(settings) as going, closing(Catalog.open(settings.catalog_location)) as catalog:
            process = start(cli, "--model", "hashing:128")
            wait_until(lambda: catalog.spaces.building() is not None, "begun")
            process.kill()
            said_by(process)
            for _ in range(KILLS - 1):
                time.sleep(rng.uniform(2, 6))
                kill_maintenance(settings)
            wait_until(lambda: catalog.spaces.building() is None, "switched")
        assert cli.run("drain").code == 0
        assert going.missed == []
        spaces = exact(settings, TURNS + going.pushed)
        assert spaces["active"].embedder == "hashing-v1-128"
        with closing(Catalog.open(settings.catalog_location)) as catalog:
            catalog.spaces.retire(spaces["standby"])
            kill_maintenance(settings)
            wait_until(lambda: len(catalog.spaces.all()) == 1, "dropped")
        assert exact(settings, TURNS + going.pushed) == {"active": spaces["active"]}
        assert not (Path(settings.vectors_location) / f"{spaces['standby'].id}.lance").exists()


def kill_maintenance(settings: Settings) -> None:
    tree = read_state(settings.data_dir)
    assert tree is not None
    [process] = [child.process for child in tree.children if child.name == "maintenance" and child.process]
    os.kill(process.pid, signal.SIGKILL)
