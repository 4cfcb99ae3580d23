"""kill -9 of a backup and of a restore at random moments, while agents push: nothing is harmed, the next one works."""

from __future__ import annotations

import random
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from known_turns import known_turn

from producers.settings import Settings, load_settings
from producers.stream import EventStream
from system import Cli, up
from workers.backup.check import check_backup

pytestmark = [pytest.mark.storm, pytest.mark.timeout(400)]

TURNS = 3000
KILLS = 3
SEED = 20_271


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Cli, Settings]]:
    """A system that is up and has stored the known turns."""
    cli = Cli(tmp_path_factory.mktemp("system") / "data")
    with up(cli):
        settings = load_settings(data_dir=cli.data_dir, embedder="hashing", reranker="none")
        with EventStream(settings) as stream:
            stream.append(map(known_turn, range(TURNS)))
        assert cli.run("drain").code == 0
        yield cli, settings


def _wait_for(path: Path, process: subprocess.Popen[bytes]) -> None:
    """Until the command has begun its work; it takes seconds to start."""
    deadline = time.monotonic() + 60
    while not path.exists():
        assert process.poll() is None, process.stdout and process.stdout.read()
        assert time.monotonic() < deadline
        time.sleep(0.005)


def _kill(process: subprocess.Popen[bytes], after: float) -> bool:
    """kill -9 in a moment; False when it had ended by then."""
    time.sleep(after)
    process.send_signal(signal.SIGKILL)
    ended = process.wait(30) == 0
    if process.stdout:
        process.stdout.close()
    return not ended


def _counts(cli: Cli) -> tuple[int, int, int]:
    status = cli.run("status", "--json").json
    return status["catalog"]["turns"], status["catalog"]["chunks"], status["vectors"]["rows"]


def test_a_killed_backup_is_never_taken_for_one_and_the_next_works(
    running: tuple[Cli, Settings], tmp_path: Path
) -> None:
    cli, settings = running
    target = tmp_path / "backup"
    moments = random.Random(SEED)
    killed = 0
    for number in range(KILLS):
        process = cli.start("backup", str(target))
        _wait_for(tmp_path / "backup.partial", process)
        killed += _kill(process, moments.uniform(0, 0.3))
        if target.exists():
            check_backup(target)
            target.rename(tmp_path / f"whole-{number}")
        with EventStream(settings) as stream:
            stream.append([known_turn(TURNS + number)])
    assert killed
    assert cli.run("drain").code == 0, "ingest goes on"
    made = cli.run("backup", str(target), "--json")
    assert made.code == 0, made.err
    assert (made.json["turns"], made.json["spaces"][0]["rows"]) == (TURNS + KILLS, made.json["chunks"])
    assert not (tmp_path / "backup.partial").exists()
    assert cli.run("backup", "--verify", str(target)).code == 0
    # Nothing that the killed ones held is held for ever.
    assert cli.run("maintain", "run", "index", "--json").code == 0


def test_a_killed_restore_is_refused_by_others_and_starts_anew(running: tuple[Cli, Settings], tmp_path: Path) -> None:
    cli, _ = running
    target = tmp_path / "backup"
    made = cli.run("backup", str(target), "--json").json
    elsewhere = Cli(tmp_path / "elsewhere")
    restored = load_settings(data_dir=elsewhere.data_dir)
    moments = random.Random(SEED)
    refused = 0
    for _ in range(KILLS):
        process = elsewhere.start("restore", str(target))
        _wait_for(restored.restore_mark, process)
        if not _kill(process, moments.uniform(0, 0.4)) or not restored.restore_mark.exists():
            break
        said = elsewhere.run(("up", "status", "push")[refused])
        assert (said.code, "is half restored" in said.err) == (2, True), said
        refused += 1
    assert refused
    if restored.restore_mark.exists():
        again = elsewhere.run("restore", str(target), "--json")
        assert again.code == 0, again.out + again.err
    with up(elsewhere):
        assert elsewhere.run("drain").code == 0
        assert _counts(elsewhere) == (made["turns"], made["chunks"], made["chunks"])
        for event in map(known_turn, (0, 1234, TURNS - 1)):
            asked = (event.content, event.tenant, "--session", event.session_id)
            found, first = ([hit["turn_index"] for hit in one.recalled(*asked)] for one in (elsewhere, cli))
            assert found[0] == first[0]
            assert sorted(found) == sorted(first)
