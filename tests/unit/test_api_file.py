"""Who is found as a data dir's query service: the one that lives, and the first of two."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from producers.api_file import API_FILE, announce, api_url

FIRST, SECOND = "http://127.0.0.1:1", "http://127.0.0.1:2"
OTHER = """
import sys
from pathlib import Path
from producers.api_file import announce
held = announce(Path(sys.argv[1]), sys.argv[2])
print(held is not None, flush=True)
sys.stdin.read()
"""


def started(data_dir: Path, url: str) -> subprocess.Popen[str]:
    """A process that says it answers at `url`; it has printed whether it was heard."""
    command = [sys.executable, "-c", OTHER, str(data_dir), url]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def test_it_is_found_until_it_takes_that_back(tmp_path: Path) -> None:
    assert api_url(tmp_path) is None
    first = announce(tmp_path, FIRST)
    assert first is not None
    assert api_url(tmp_path) == FIRST
    first.close()
    assert api_url(tmp_path) is None


def test_a_second_one_takes_nothing_from_the_first(tmp_path: Path) -> None:
    first = announce(tmp_path, FIRST)
    assert first is not None
    assert announce(tmp_path, SECOND) is None
    assert api_url(tmp_path) == FIRST
    first.close()
    second = announce(tmp_path, SECOND)
    assert second is not None
    assert api_url(tmp_path) == SECOND
    second.close()


def test_one_that_is_killed_is_not_found_and_makes_room(tmp_path: Path) -> None:
    killed = started(tmp_path, FIRST)
    assert killed.stdout is not None
    assert killed.stdout.readline() == "True\n"
    assert api_url(tmp_path) == FIRST
    killed.kill()
    killed.communicate()
    assert FIRST in (tmp_path / API_FILE).read_text(), "it could not take it back"
    assert api_url(tmp_path) is None
    second = announce(tmp_path, SECOND)
    assert second is not None
    assert api_url(tmp_path) == SECOND
    second.close()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"url": 3}', "{}", "\udcff"])
def test_a_broken_file_names_nobody(tmp_path: Path, text: str) -> None:
    held = announce(tmp_path, FIRST)
    assert held is not None
    (tmp_path / API_FILE).write_text(text, errors="surrogateescape")
    assert api_url(tmp_path) is None
    held.close()
