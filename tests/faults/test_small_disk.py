"""Disks that really are full: a small file system of its own for one part of the data or for all, for `make faults`.

Mounting it takes root. Where it is refused these tests fail and say so; test_full_disk.py and test_full_stores.py hold
the same with file-size limits, anywhere.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from producers.settings import load_settings
from system import Cli, stop
from workers.stores.catalog import Catalog
from workers.stores.vectors import VectorStore

pytestmark = [pytest.mark.faults, pytest.mark.storm, pytest.mark.timeout(400)]

SIZE = "128m"
"""Above what counts as nearly full, and small enough for memory."""
WAIT_SECONDS = 90.0
"""Redis is started again after up to 30 s."""
BATCH = 300
FULL_SECONDS = 10.0
PLACES = {
    "everything": ("data", "has 0.0 MiB left"),
    "catalog": ("catalog", "database or disk is full; accepted turns are safe"),
    "vectors": ("vectors", "No space left on device"),
    "redis": ("data/redis", "what it has answered is safe there"),
}
"""What lies on the small disk → its folder, and what `status` must say once it is full."""


@contextmanager
def small_disk(folder: Path) -> Iterator[None]:
    folder.mkdir(parents=True)
    argv = ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "none", str(folder)]
    made = subprocess.run(argv, capture_output=True, text=True, check=False)
    if made.returncode:
        pytest.fail(f"this test needs to mount a tmpfs, as root outside of a container: {made.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@contextmanager
def full(folder: Path) -> Iterator[None]:
    ballast = folder / "ballast"
    with ballast.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(4096))
    try:
        yield
    finally:
        ballast.unlink()


class Pusher:
    """Pushes known turns and counts what was accepted."""

    def __init__(self, cli: Cli) -> None:
        self._cli = cli
        self.accepted = 0

    def push(self) -> str:
        """Push the next turns; returns the error, if there was one. What was not accepted is pushed the next time."""
        answer = self._cli.push([_turn(number) for number in range(self.accepted, self.accepted + BATCH)]).json
        self.accepted += answer["accepted"]
        return str(answer.get("error", ""))


@pytest.mark.parametrize("place", PLACES)
def test_what_is_accepted_waits_for_room_and_is_then_stored_once(tmp_path: Path, place: str) -> None:
    folder, says = tmp_path / PLACES[place][0], PLACES[place][1]
    cli = Cli(tmp_path / "data", {"SCOPE_RECALL_LEASE": "2", "SCOPE_RECALL_BATCH_TURNS": "100"})
    if place == "catalog":
        cli.environment["SCOPE_RECALL_CATALOG_URL"] = f"sqlite:///{folder}/catalog.db"
    if place == "vectors":
        cli.environment["SCOPE_RECALL_VECTORS_URI"] = str(folder)
    with small_disk(folder):
        process = cli.start("up", "--workers", "2")
        try:
            cli.wait_ready(process)
            pusher = Pusher(cli)
            assert pusher.push() == ""
            assert cli.run("drain").code == 0
            with full(folder):
                errors = [pusher.push() for _ in range(2)]
                if place == "everything":
                    assert all("cannot be written: No space left on device" in error for error in errors)
                    assert all("accepted before is safe there: free space" in error for error in errors)
                else:
                    assert errors == ["", ""]
                wait_until(lambda: any(says in line for line in degraded(cli)), lambda: degraded(cli))
                time.sleep(FULL_SECONDS)
                assert process.poll() is None
                assert cli.recalled("build 7919 passed", "t")
            assert pusher.push() == ""
            assert cli.run("drain", "--timeout", str(WAIT_SECONDS)).code == 0
            assert_exact(cli, pusher.accepted)
            wait_until(lambda: not degraded(cli), lambda: degraded(cli))
        finally:
            assert stop(process) == 0


def _turn(number: int) -> dict[str, Any]:
    content = f"turn {number}: build {number * 7919 % 100_003} passed " + "and was checked " * 10
    return {"tenant": "t", "session_id": f"s{number % 31}", "turn_index": number, "role": "user", "content": content}


def degraded(cli: Cli) -> list[str]:
    lines: list[str] = cli.run("status", "--json").json["degraded"]
    return lines


def wait_until(condition: Callable[[], bool], found: Callable[[], object]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert time.monotonic() < deadline, found()
        time.sleep(0.5)


def assert_exact(cli: Cli, count: int) -> None:
    """Both stores hold exactly `count` turns, one chunk each, and nothing became a dead letter."""
    status = cli.run("status", "--json").json
    assert status["catalog"] == {"turns": count, "chunks": count, "pending": 0}
    assert status["streams"]["dead"] == 0
    settings = load_settings(
        data_dir=cli.data_dir,
        catalog_url=cli.environment.get("SCOPE_RECALL_CATALOG_URL"),
        vectors_uri=cli.environment.get("SCOPE_RECALL_VECTORS_URI"),
    )
    catalog = Catalog.open(settings.catalog_location)
    active = catalog.spaces.active()
    assert active is not None
    assert sorted(VectorStore(settings.vectors_location).keys(active.space)) == list(catalog.vector_ids(active.space))
    catalog.close()
