"""Input that nobody meant to send, on a data dir with an awkward name: one clear line each, and nothing leaks."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from producers.connection import connect
from producers.keys import EVENT_FIELD, Keys
from producers.settings import load_settings
from system import Cli, up

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(200)]

SECRET = "hunter2"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cli]:
    cli = Cli(tmp_path_factory.mktemp("odd") / "da ta?x=1#frag %20 数据'\"")
    with up(cli):
        yield cli


def turn(content: str, **fields: Any) -> dict[str, Any]:
    return {"session_id": "s", "turn_index": 0, "role": "user", "content": content, **fields}


def test_everything_stays_inside_a_data_dir_whatever_its_name(running: Cli) -> None:
    running.push([turn("inside", tenant="dir")])
    assert running.run("drain").code == 0
    assert [hit["content"] for hit in running.recalled("inside", "dir")] == ["inside"]
    assert (running.data_dir / "catalog.db").is_file()
    assert [path.name for path in running.data_dir.parent.iterdir()] == [running.data_dir.name]


@pytest.mark.parametrize(
    "content",
    [
        "[/INST] ends here",
        "[red]not red[/red]",
        "[link=file:///x]y[/link]",
        ":smile: \x1b[31mred\x07",
        "[" * 200,
        "\u202eabc",
    ],
)
def test_content_is_shown_as_it_is_and_is_never_markup(running: Cli, content: str) -> None:
    running.push([turn(f"marker {content}", tenant="markup", speaker="[b]Ada[/b]", session_id="[/]")])
    assert running.run("drain").code == 0
    shown = running.run("recall", "marker", "--tenant", "markup", "--explain")
    assert shown.code == 0, shown.err
    assert "Traceback" not in shown.err
    assert "[b]Ada[/b]" in shown.out
    assert "\x1b[31m" not in shown.out, "control sequences of content must not reach a terminal"
    assert running.recalled("marker", "markup")[0]["content"] == f"marker {content}"


def test_the_ends_of_the_calendar_can_be_stored_and_recalled_and_beyond_is_refused(running: Cli) -> None:
    times = ["0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999Z", "1969-12-31T23:59:59.999999+00:00"]
    pushed = running.push(
        [turn("calendar", tenant="time", turn_index=n, created_at=time) for n, time in enumerate(times)]
        + [turn("calendar", tenant="time", turn_index=9, created_at="9999-12-31T23:59:59-14:00")]
    )
    assert (pushed.json["accepted"], pushed.json["rejected"]) == (3, 1)
    assert running.run("drain").code == 0
    hits = {hit["turn_index"]: hit["created_at"] for hit in running.recalled("calendar", "time", "--no-fold")}
    assert hits == {n: time.replace("Z", "+00:00") for n, time in enumerate(times)}
    assert running.run("recall", "calendar", "--tenant", "time").code == 0


@pytest.mark.parametrize(
    "line",
    [
        b"[" * 100_000 + b"]" * 100_000,
        b'{"a":"\\ud800' + b"[" * 100_000,
        b'{"session_id":"s","turn_index":0,"role":"user","content":"x","metadata":'
        + b'{"a":' * 900
        + b"1"
        + b"}" * 901,
        b'{"session_id":"s","turn_index":1e400,"role":"user","content":"x"}',
        b"\x00\x01\x02\xff\xfe",
        b"\xef\xbb\xbf\xef\xbb\xbf{}",
    ],
)
def test_a_line_made_to_break_a_parser_is_a_rejected_line(running: Cli, line: bytes) -> None:
    result = running.run("push", "-", "--json", stdin=line + b"\n")
    assert result.code == 1, result.err
    assert (result.json["accepted"], result.json["rejected"]) == (0, 1)
    assert "Traceback" not in result.err


def test_a_poisoned_stream_entry_leaves_no_content_in_dead_letters_or_logs(running: Cli) -> None:
    client = connect(load_settings(data_dir=running.data_dir))
    stream = Keys("scope-recall").stream("live")
    for payload in (
        {**turn(SECRET), "role": SECRET},
        {**turn("x"), "content": [SECRET]},
        {**turn("x"), "created_at": SECRET},
    ):
        client.xadd(stream, {EVENT_FIELD: json.dumps(payload)})
    running.push([turn(f"good {SECRET}", tenant="clean")])
    running.run("drain")
    letters = [json.loads(line) for line in running.run("dead", "list", "--json").out.splitlines()]
    assert len(letters) == 3
    assert {letter["reason"].split(":")[1].strip() for letter in letters} == {"role", "content", "created_at"}
    assert SECRET not in json.dumps(letters)
    for log in (running.data_dir / "logs").iterdir():
        assert SECRET not in log.read_text(), log.name
    shown = running.run("dead", "list")
    assert all(letter["id"] in shown.out for letter in letters), "an id that is cut off cannot be replayed"
    dropped = running.run("dead", "drop", letters[0]["id"], "--json").json
    assert dropped == {"dropped": 1, "left": 2}
    assert running.run("dead", "drop", "--all").code == 0


@pytest.mark.parametrize(
    "environment",
    [
        {"SCOPE_RECALL_REDIS_URL": f"redis://localhost:1/0?password={SECRET}"},
        {"SCOPE_RECALL_REDIS_URL": f"redis://:{SECRET}@localhost:port/0"},
        {"SCOPE_RECALL_REDIS_URL": f"http://user:{SECRET}@localhost/"},
        {"SCOPE_RECALL_CATALOG_URL": f"postgresql+psycopg://user:{SECRET}@localhost:1/x"},
        {"SCOPE_RECALL_CATALOG_URL": f"mysql://user:{SECRET}@localhost:port/x"},
    ],
)
def test_no_command_shows_a_password_or_a_traceback(running: Cli, environment: dict[str, str]) -> None:
    odd = Cli(running.data_dir, environment)
    commands = [("settings", "--json"), ("status",), ("doctor",)]
    for command in commands:
        result = odd.run(*command)
        assert SECRET not in result.out + result.err, command
        assert "Traceback" not in result.err, command
        assert result.code in (0, 1, 2)


def test_a_closed_standard_input_and_a_full_output_are_said_in_one_line(running: Cli) -> None:
    base = f"{sys.executable} -P -m query.cli"
    closed = subprocess.run(
        ["bash", "-c", f"{base} push - <&-"], env=running.full_environment(), capture_output=True, check=False
    )
    assert (closed.returncode, closed.stderr.count(b"\n")) == (2, 1), closed.stderr
    full = subprocess.run(
        ["bash", "-c", f"{base} settings > /dev/full"], env=running.full_environment(), capture_output=True, check=False
    )
    assert (full.returncode, full.stderr.count(b"\n")) == (2, 1), full.stderr
    assert b"No space left" in full.stderr
    piped = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {base} settings | head -1"],
        env=running.full_environment(),
        capture_output=True,
        check=False,
    )
    assert b"Traceback" not in piped.stderr
    assert piped.returncode in (0, 1)


BLOCK_EXTRAS = """
import sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {names}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Blocker())
from query.cli import main
main()
"""


@pytest.mark.parametrize("command", ["up", "intake", "worker", "scheduler", "status", "recall", "demo", "serve"])
def test_a_command_whose_extra_is_missing_says_what_to_install(running: Cli, command: str) -> None:
    names = {"rq", "torch", "lancedb", "sqlalchemy", "numpy", "pyarrow", "psutil", "fastapi", "uvicorn"}
    args = ["x", "--tenant", "t"] if command == "recall" else []
    result = subprocess.run(
        [sys.executable, "-c", BLOCK_EXTRAS.format(names=names), command, *args],
        env=Cli(running.data_dir.parent / "elsewhere").full_environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert result.returncode == 2, result.stderr
    assert "pip install 'scope-recall-hermes[embedded]'" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_producer_without_extras_can_push(running: Cli, tmp_path: Path) -> None:
    names = {"rq", "torch", "lancedb", "sqlalchemy", "numpy", "pyarrow", "psutil", "fastapi", "uvicorn", "alembic"}
    file = tmp_path / "turns.jsonl"
    file.write_text(json.dumps(turn("from a light producer", tenant="light")) + "\n")
    result = subprocess.run(
        [sys.executable, "-c", BLOCK_EXTRAS.format(names=names), "push", str(file)],
        env=running.full_environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert running.run("drain").code == 0
    assert running.recalled("light producer", "light")[0]["content"] == "from a light producer"
