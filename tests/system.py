"""The command line as a person uses it, for the tests: run a command, start `up`, wait until it can work."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

READY_SECONDS = 60.0


@dataclass
class Result:
    """What a command said."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@dataclass
class Cli:
    """Runs `scope-recall` on one data dir."""

    data_dir: Path
    environment: dict[str, str] = field(default_factory=dict)

    def run(self, *args: str, stdin: bytes | None = None, timeout: float = 100) -> Result:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "query.cli", *args],
            input=stdin if stdin is not None else b"",
            capture_output=True,
            env=self.full_environment(),
            timeout=timeout,
            check=False,
        )
        return Result(done.returncode, done.stdout.decode(), done.stderr.decode())

    def start(self, *args: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "query.cli", *args],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=self.full_environment(),
        )

    def full_environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "SCOPE_RECALL_DATA_DIR": str(self.data_dir),
            "SCOPE_RECALL_EMBEDDER": "hashing",
            "SCOPE_RECALL_RERANKER": "none",
            "SCOPE_RECALL_SERVE": "false",
            "COLUMNS": "160",
            **self.environment,
        }

    def push(self, events: Sequence[dict[str, Any]]) -> Result:
        lines = "".join(json.dumps(event, ensure_ascii=False) + "\n" for event in events)
        return self.run("push", "-", "--json", stdin=lines.encode())

    def recalled(self, query: str, tenant: str, *args: str) -> list[dict[str, Any]]:
        result = self.run("recall", query, "--tenant", tenant, "--json", *args)
        assert result.code == 0, result.out + result.err
        hits: list[dict[str, Any]] = result.json["hits"]
        return hits

    def wait_ready(self, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + READY_SECONDS
        while time.monotonic() < deadline:
            assert process.poll() is None, "`up` ended: " + (process.stdout.read().decode() if process.stdout else "")
            status = self.run("status", "--json")
            if status.code in (0, 1):
                tree = status.json["processes"]
                if tree and all(child["ready"] for child in tree["children"]):
                    return
            time.sleep(0.3)
        raise AssertionError("not ready: " + status.out + status.err)


@contextmanager
def up(cli: Cli, *arguments: str) -> Iterator[Cli]:
    """The system is up and ready for the block, and has ended well after it."""
    process = cli.start("up", *arguments)
    try:
        cli.wait_ready(process)
        yield cli
    finally:
        assert stop(process) == 0


def stop(process: subprocess.Popen[bytes], number: int = signal.SIGTERM) -> int:
    """End `up` as a person would, and return its exit code."""
    process.send_signal(number)
    code = process.wait(40)
    if process.stdout:
        process.stdout.close()
    return code
