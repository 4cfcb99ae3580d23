"""Temporary files are kept in the data dir, where a forget finds them, and those of processes that are gone go."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from producers.settings import Settings
from workers import temporary

pytestmark = pytest.mark.integration

LEAVES_A_FILE = """
import os, sys, tempfile
from producers.settings import load_settings
from workers.temporary import keep_in_data_dir
keep_in_data_dir(load_settings(data_dir=sys.argv[1]))
with open(os.path.join(tempfile.gettempdir(), "left"), "w") as file:
    file.write("heron")
if sys.argv[2] == "killed":
    os.kill(os.getpid(), 9)
print(file.name)
"""


STAYS = """
import sys, tempfile, time
from producers.settings import load_settings
from workers.temporary import keep_in_data_dir
keep_in_data_dir(load_settings(data_dir=sys.argv[1]))
print(tempfile.gettempdir(), flush=True)
time.sleep(60)
"""


def leave_a_file(folder: Path, how: str) -> str:
    command = [sys.executable, "-c", LEAVES_A_FILE, str(folder), how]
    return subprocess.run(command, check=False, capture_output=True, text=True).stdout.strip()


def test_what_a_killed_process_left_goes_and_what_runs_stays(settings: Settings) -> None:
    settings.data_dir.mkdir()
    assert leave_a_file(settings.data_dir, "ends").startswith(f"{settings.data_dir}/tmp/")
    assert list((settings.data_dir / "tmp").iterdir()) == []
    leave_a_file(settings.data_dir, "killed")
    (left,) = (settings.data_dir / "tmp").rglob("left")
    running = subprocess.Popen([sys.executable, "-c", STAYS, str(settings.data_dir)], stdout=subprocess.PIPE, text=True)
    assert running.stdout is not None
    mine = Path(running.stdout.readline().strip())
    strange = settings.data_dir / "tmp" / "some-body"
    strange.mkdir()
    temporary.clear(settings)
    assert not left.exists()
    assert mine.is_dir()
    assert strange.is_dir()
    running.kill()
    running.wait()
    running.stdout.close()
    temporary.clear(settings)
    assert not mine.exists()


def test_a_data_dir_that_is_not_there_is_not_made(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", "/tmp")
    temporary.keep_in_data_dir(settings)
    assert os.environ["TMPDIR"] == "/tmp"
    assert not settings.data_dir.exists()
