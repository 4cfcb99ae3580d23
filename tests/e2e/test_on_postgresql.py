"""The commands of a day over a catalog on PostgreSQL, as over SQLite."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from postgresql import Postgresql
from system import Cli, up
from workers.maintenance.run import JOBS

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]


def test_a_system_lives_on_postgresql(tmp_path: Path, postgresql: Postgresql) -> None:
    path = f"{postgresql.programs}{os.pathsep}{os.environ['PATH']}"
    cli = Cli(tmp_path / "data", {"SCOPE_RECALL_CATALOG_URL": postgresql.database(), "PATH": path})
    with up(cli):
        pushed = cli.push(
            [
                {
                    "tenant": tenant,
                    "session_id": f"s{n % 4}",
                    "turn_index": n,
                    "role": "user",
                    "content": said(n, tenant),
                }
                for n in range(40)
                for tenant in ("acme", "o'brien")
            ]
        )
        assert pushed.json["accepted"] == 80
        assert cli.run("drain").code == 0
        assert cli.recalled("heron 7", "acme", "-k", "1")[0]["content"] == said(7, "acme")
        assert len(cli.run("sessions", "--tenant", "acme", "--json").json["sessions"]) == 4
        assert cli.run("count", "heron", "--tenant", "o'brien", "--json").json["turns"] == 40
        history = cli.run("history", "--tenant", "acme", "--session", "s1", "--json").json["turns"]
        assert [one["turn_index"] for one in history] == list(range(1, 40, 4))

        forgotten = cli.run("forget", "--tenant", "acme", "--session", "s3", "--json")
        assert (forgotten.code, forgotten.json["verified"], forgotten.json["turns"]) == (0, True, 10)
        assert {hit["session_id"] for hit in cli.recalled("heron 7", "acme", "-k", "40")} == {"s0", "s1", "s2"}
        assert len(cli.recalled("heron 7", "o'brien", "-k", "40")) == 40

        for job in JOBS:
            done = cli.run("maintain", "run", job, "--json")
            assert done.code == 0, (job, done.out, done.err)
        status = cli.run("status", "--json")
        assert (status.code, status.json["catalog"]["turns"], status.json["vectors"]["rows"]) == (0, 70, 70)
        assert cli.run("backup", str(tmp_path / "copy")).code == 0

    elsewhere = Cli(tmp_path / "elsewhere", {**cli.environment, "SCOPE_RECALL_CATALOG_URL": postgresql.database()})
    assert elsewhere.run("restore", str(tmp_path / "copy")).code == 0
    assert elsewhere.recalled("heron 8", "acme", "-k", "1")[0]["content"] == said(8, "acme")


def said(number: int, tenant: str) -> str:
    return f"heron {number} of {tenant} waits at weir {number * number}"
