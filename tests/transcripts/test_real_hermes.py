"""The reader of Hermes databases while the real Hermes writes one: no lock error on either side, every turn once."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from subprocess import PIPE

import pytest
from reading_checks import bad, check_resumption, said_in

from hermes_environment import hermes_python
from producers.transcripts.hermes import Hermes
from producers.transcripts.port import Item, Mark, ReadOptions, State

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

SESSIONS, TURNS = 4, 1200
WRITER = Path(__file__).with_name("hermes_writer.py")


@pytest.fixture(scope="module")
def python() -> Path:
    return hermes_python()


def test_a_database_is_read_while_hermes_writes_it(python: Path, tmp_path: Path) -> None:
    path, expected = tmp_path / "state.db", tmp_path / "said.json"
    command = [str(python), str(WRITER), str(path), str(SESSIONS), str(TURNS), str(expected)]
    environment = {"HERMES_HOME": str(tmp_path), "PATH": os.environ["PATH"]}
    items: list[Item] = []
    state: State | None = None
    readings = 0
    with subprocess.Popen(command, env=environment, stdout=PIPE, stderr=PIPE, text=True) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "writing\n"
        while writer.poll() is None:
            state = read_on(path, state, items)
            readings += 1
        _, errors = writer.communicate()
    read_on(path, state, items)
    assert (writer.returncode, errors) == (0, "")
    assert readings > 1
    assert bad(items) == []
    assert sorted(f"{one.session} {one.content}" for one in said_in(items)) == sorted(json.loads(expected.read_text()))
    assert len({one.origin for one in said_in(items)}) == TURNS
    check_resumption(Hermes(), path)


def read_on(path: Path, state: State | None, items: list[Item]) -> State | None:
    """Add what is new to the items; returns where to go on."""
    found = list(Hermes().read(path, ReadOptions(), state))
    items.extend(found)
    end = found[-1]
    assert isinstance(end, Mark)
    return json.loads(json.dumps(end.state))
