"""A data dir, or a folder in it, that cannot be written: commands say so in a line, and what runs waits and goes on."""

from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from limits import obeying, read_only
from producers.settings import load_settings
from system import Cli, Result, stop, up
from workers.status import gather_status
from workers.stores.catalog import Catalog
from workers.stores.vectors import VectorStore

pytestmark = [pytest.mark.faults, pytest.mark.timeout(240)]

WAIT_SECONDS = 60.0


@dataclass
class ObedientCli(Cli):
    """Commands for which modes count, whoever runs the tests."""

    def argv(self, *args: str) -> list[str]:
        return [*obeying(self.data_dir.with_name("no-limit")), sys.executable, "-P", "-m", "query.cli", *args]

    def run(self, *args: str, stdin: bytes | None = None, timeout: float = 100) -> Result:
        environment = self.full_environment()
        done = subprocess.run(
            self.argv(*args), input=stdin or b"", capture_output=True, env=environment, timeout=timeout, check=False
        )
        return Result(done.returncode, done.stdout.decode(), done.stderr.decode())

    def start(self, *args: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            self.argv(*args),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=self.full_environment(),
        )


def turns(first: int, count: int) -> list[dict[str, Any]]:
    return [
        {"tenant": "t", "session_id": "s", "turn_index": number, "role": "user", "content": f"build {number} passed"}
        for number in range(first, first + count)
    ]


@pytest.fixture(scope="module")
def cli(tmp_path_factory: pytest.TempPathFactory) -> ObedientCli:
    """On a data dir with a catalog in it."""
    data_dir = tmp_path_factory.mktemp("read-only") / "data"
    Catalog.open(data_dir / "catalog.db", create=True).close()
    return ObedientCli(data_dir)


def test_turns_wait_for_a_vector_store_that_cannot_be_written(tmp_path: Path) -> None:
    cli = ObedientCli(tmp_path / "data", {"SCOPE_RECALL_LEASE": "1"})
    with up(cli):
        assert cli.push(turns(0, 50)).code == 0
        assert cli.run("drain").code == 0
        settings = load_settings(data_dir=cli.data_dir, embedder="hashing")
        with read_only(Path(settings.vectors_location)):
            assert cli.push(turns(50, 50)).json["accepted"] == 50
            deadline = time.monotonic() + WAIT_SECONDS
            while not (lines := [line for line in gather_status(settings)["degraded"] if "vector store" in line]):
                assert time.monotonic() < deadline
                time.sleep(0.1)
            assert "Permission denied" in lines[0]
            assert "accepted turns are safe" in lines[0]
            assert "make it writable" in lines[0]
            assert gather_status(settings)["catalog"]["pending"] == 50
        drained = cli.run("drain", "--json").json
        assert (drained["turns"], drained["dead"]) == (100, 0)
        catalog = Catalog.open(settings.catalog_location)
        active = catalog.spaces.active()
        assert active is not None
        stored = sorted(VectorStore(settings.vectors_location).keys(active.space))
        assert stored == list(catalog.vector_ids(active.space))
        catalog.close()
        assert gather_status(settings)["degraded"] == []


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("up",), ("cannot be used: Permission denied", "Nothing in it was changed", "make it writable")),
        (("worker",), ("catalog.db", "accepted turns are safe", "writable")),
        (("push", "-"), ("no Redis", "spool", "Permission denied", "accepted before is safe", "can be written")),
        (("recall", "which build?", "--tenant", "t"), ("catalog.db", "accepted turns are safe", "writable")),
    ],
    ids=lambda value: value[0],
)
def test_a_command_on_a_read_only_data_dir_fails_in_one_line(
    cli: ObedientCli, args: tuple[str, ...], says: tuple[str, ...]
) -> None:
    with read_only(cli.data_dir):
        result = cli.run(*args, stdin=b'{"session_id": "s", "turn_index": 0, "role": "user", "content": "hello"}\n')
    assert result.code == 2, result.out + result.err
    lines = [line for line in result.err.splitlines() if not line.startswith("data dir ")]
    assert len(lines) == 1, result.err
    assert all(words in lines[0] for words in says), lines[0]


def test_status_and_doctor_tell_a_read_only_data_dir_and_show_no_figures_they_cannot_read(cli: ObedientCli) -> None:
    with read_only(cli.data_dir):
        status = cli.run("status", "--json")
        doctor = cli.run("doctor", "--json")
        people = cli.run("status")
    assert (status.code, doctor.code, people.code) == (1, 1, 1)
    assert "catalog" not in status.json
    assert "vectors" not in status.json
    assert any("catalog.db" in line and "writable" in line for line in status.json["degraded"])
    assert "stores: not known" in people.out
    (check,) = [check for check in doctor.json["checks"] if check["name"] == "data dir"]
    assert check["ok"] is False
    assert "writable" in check["advice"]


def test_intake_works_for_a_redis_elsewhere_though_it_cannot_mark_itself_ready(tmp_path: Path) -> None:
    from workers.supervision.redis_server import embedded_redis

    elsewhere = load_settings(data_dir=tmp_path / "redis")
    with embedded_redis(elsewhere):
        cli = ObedientCli(tmp_path / "data", {"SCOPE_RECALL_REDIS_URL": elsewhere.redis_location})
        cli.data_dir.mkdir()
        with read_only(cli.data_dir):
            process = cli.start("intake")
            assert process.stdout is not None
            lines = [process.stdout.readline() for _ in range(3)]
            assert any(b"ready_not_marked" in line and b"Permission denied" in line for line in lines), lines
            assert stop(process) == 0
