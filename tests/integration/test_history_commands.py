"""`sessions`, `history` and `count`: what people see, and that the routes of these names say what the commands say."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from fastapi.testclient import TestClient

from filled_catalog import ODD_SESSIONS, SAID, fill_history
from query.api.app import create_app
from query.cli import main
from served import LOOPBACK, settings_of

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fill_history(tmp_path_factory.mktemp("history") / "data")


@pytest.fixture(scope="module")
def client(data_dir: Path) -> Iterator[TestClient]:
    with TestClient(create_app(settings_of(data_dir)), LOOPBACK) as client:
        yield client


def run(data_dir: Path, *args: str) -> tuple[int, str]:
    """(exit code, output and errors) of a command, as wide as a large terminal."""
    environment = {"SCOPE_RECALL_DATA_DIR": str(data_dir), "COLUMNS": "160"}
    done = CliRunner().invoke(main, [*args], env=environment)
    assert isinstance(done.exception, SystemExit | None), done.exception
    return done.exit_code, done.output


def said(data_dir: Path, *args: str) -> Any:
    code, output = run(data_dir, *args, "--tenant", "t", "--json")
    assert code == 0, output
    return json.loads(output)


def get(client: TestClient, path: str, **parameters: Any) -> Any:
    answer = client.get(path, params={"tenant": "t", **parameters})
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_the_sessions_are_listed_with_their_figures_and_how_to_see_the_others(
    data_dir: Path, client: TestClient
) -> None:
    first = {
        "session_id": "deploy-7",
        "turns": 3,
        "first": "2026-01-31T12:00:00+00:00",
        "last": "2026-02-01T12:00:00+00:00",
        "agents": ["ops"],
    }
    answer = said(data_dir, "sessions", "--limit", "1")
    assert answer == {"sessions": [first], "total": 2 + len(ODD_SESSIONS)} == get(client, "/v1/sessions", limit=1)
    code, shown = run(data_dir, "sessions", "--tenant", "t", "--limit", "2")
    assert code == 0
    assert all(part in shown for part in ("deploy-7", "2026-01-31 12:00", "2026-02-01 12:00", "ops"))
    assert f"2 of {2 + len(ODD_SESSIONS)} sessions: --limit {2 + len(ODD_SESSIONS)} shows all" in shown
    assert " of " not in run(data_dir, "sessions", "--tenant", "t")[1]
    narrowed = said(data_dir, "sessions", "--agent", "ops", "--since", "2026-01-31", "--until", "2026-02-01")
    assert narrowed == {"sessions": [first | {"turns": 1, "last": first["first"]}], "total": 1}
    assert narrowed == get(
        client, "/v1/sessions", agents=["ops"], since="2026-01-31T00:00:00Z", until="2026-02-01T00:00:00Z"
    )
    assert [one["session_id"] for one in get(client, "/v1/sessions", sources="chat")["sessions"]] == ["chat-2"]
    assert run(data_dir, "sessions", "--tenant", "none") == (0, "no sessions in this scope\n")


def test_a_session_is_shown_in_order_whole_in_json_and_with_short_tool_output_for_people(
    data_dir: Path, client: TestClient
) -> None:
    answer = said(data_dir, "history", "--session", "deploy-7")
    assert answer | {"left_out": 0} == get(client, "/v1/sessions/deploy-7/turns")
    assert [turn["content"] for turn in answer["turns"]] == [one.content for one in SAID[:3]]
    assert answer["turns"][1] == {
        "tenant": "t",
        "session_id": "deploy-7",
        "turn_index": 1,
        "role": "assistant",
        "speaker": "Ada",
        "agent_id": "ops",
        "source": "push",
        "tags": [],
        "metadata": {},
        "created_at": None,
        "content": "Port 8443, since the move to ＴＬＳ.",
    }
    code, shown = run(data_dir, "history", "--tenant", "t", "--session", "deploy-7")
    assert code == 0
    assert "Which port does the Proxy use?" in shown
    assert "(2,500 characters; --json has all)" in shown
    assert shown.count("port ") < 100
    shown = run(data_dir, "history", "--tenant", "t", "--session", "chat-2")[1]
    assert "[red]sure[/red]" in shown
    assert "\x1b[31m" not in shown


@pytest.mark.parametrize(
    ("options", "parameters", "indexes", "total"),
    [
        (["--first", "1"], {"first": 1}, [0], 3),
        (["--last", "2"], {"last": 2}, [1, 2], 3),
        (["--turns", "1-2"], {"from_turn": 1, "to_turn": 2}, [1, 2], 2),
        (["--turns", "1"], {"from_turn": 1, "to_turn": 1}, [1], 1),
        (["--turns", "1-", "--last", "1"], {"from_turn": 1, "last": 1}, [2], 2),
        (["--turns", "-0"], {"to_turn": 0}, [0], 1),
        (["--role", "user", "--role", "tool"], {"roles": ["user", "tool"]}, [0, 2], 2),
        (["--since", "2026-02-01"], {"since": "2026-02-01T00:00:00Z"}, [2], 1),
        (["--turns", "9-"], {"from_turn": 9}, [], 0),
    ],
)
def test_a_part_of_a_session_is_the_same_by_command_and_route(
    data_dir: Path, client: TestClient, options: list[str], parameters: dict[str, Any], indexes: list[int], total: int
) -> None:
    answer = said(data_dir, "history", "--session", "deploy-7", *options)
    assert [turn["turn_index"] for turn in answer["turns"]] == indexes
    assert answer["total"] == total
    assert answer | {"left_out": 0} == get(client, "/v1/sessions/deploy-7/turns", **parameters)
    shown = run(data_dir, "history", "--tenant", "t", "--session", "deploy-7", *options)[1]
    assert (f"{len(indexes)} of {total} turns" in shown) == (len(indexes) < total)


def test_an_unknown_session_is_said_and_names_no_other(data_dir: Path, client: TestClient) -> None:
    code, shown = run(data_dir, "history", "--tenant", "t", "--session", "theirs")
    assert (code, shown) == (
        0,
        "tenant t has no turns of session theirs; `scope-recall sessions --tenant t` lists its sessions\n",
    )
    assert said(data_dir, "history", "--session", "theirs") == {"session_id": "theirs", "turns": [], "total": 0}
    narrowed = run(data_dir, "history", "--tenant", "t", "--session", "chat-2", "--role", "system")[1]
    assert "no turns of session chat-2 that these filters keep" in narrowed
    assert get(client, "/v1/sessions/theirs/turns")["turns"] == []


def test_a_text_is_counted_the_same_by_command_and_route(data_dir: Path, client: TestClient) -> None:
    for text, turns, times in (("port", 3, 502), ("证书", 1, 2), ("tls", 1, 1), ("%", 3, 3), ("swordfish", 0, 0)):
        answer = said(data_dir, "count", text)
        assert answer == {"text": text, "turns": turns, "times": times} == get(client, "/v1/count", text=text)
    by_day = said(data_dir, "count", "PORT", "--by", "day")
    assert by_day == get(client, "/v1/count", text="PORT", by="day")
    assert [tuple(group.values()) for group in by_day["groups"]] == [
        ("2026-01-31", 1, 1),
        ("2026-02-01", 1, 500),
        (None, 1, 1),
    ]
    filters = ("--session", "deploy-7", "--role", "user", "--agent", "ops", "--since", "2026-01-31", "--by", "session")
    narrowed = said(data_dir, "count", "port", *filters)
    assert narrowed["groups"] == [{"session": "deploy-7", "turns": 1, "times": 1}]
    parameters = {"sessions": "deploy-7", "roles": "user", "agents": "ops", "since": "2026-01-31T00:00:00Z"}
    assert get(client, "/v1/count", text="port", by="session", **parameters) == narrowed


def test_people_see_the_count_by_day_with_those_that_have_no_time(data_dir: Path) -> None:
    shown = run(data_dir, "count", "port", "--tenant", "t", "--by", "day")[1].splitlines()
    assert next(line.split()[1:-1:2] for line in shown if "│" in line) == ["2026-01-31", "1", "1"]
    assert shown[-2].startswith("└")
    assert "no time" in shown[-3]
    assert shown[-1] == "said in 3 turns, 502 times"
    assert run(data_dir, "count", "odd %2F", "--tenant", "t") == (0, "said in 1 turn, 1 time\n")
    assert run(data_dir, "count", "zebra", "--tenant", "t", "--by", "session") == (0, "said in no turn of this scope\n")


@pytest.mark.parametrize(
    ("args", "reason"),
    [
        (["sessions"], "--tenant is missing"),
        (["sessions", "--tenant", "t", "--limit", "0"], "0 is not in the range"),
        (["history", "--tenant", "t"], "Missing option '--session'"),
        (["history", "--tenant", "t", "--session", "s", "--turns", "9-3"], "turns 9 to 3: a lower and a higher"),
        (["history", "--tenant", "t", "--session", "s", "--turns", "x"], "--turns 'x': turn indexes are due"),
        (["history", "--tenant", "t", "--session", "s", "--first", "1", "--last", "1"], "give one of them"),
        (["history", "--tenant", "t", "--session", "\udcff"], "session: holds a NUL or a lone surrogate"),
        (["count", "", "--tenant", "t"], "text: empty"),
        (["count", "\udcff", "--tenant", "t"], "text: holds a NUL or a lone surrogate"),
        (["count", "x", "--tenant", "t", "--since", "soon"], "--since 'soon': not a date"),
        (["count", "x", "--tenant", "t", "--data-dir", "/nonexistent/place"], "no catalog at /nonexistent/place"),
    ],
)
def test_a_mistake_gets_one_clear_message_and_exit_2(data_dir: Path, args: list[str], reason: str) -> None:
    code, shown = run(data_dir, *args)
    assert (code, reason in shown) == (2, True), shown


def test_the_commands_load_neither_models_nor_the_vector_store(data_dir: Path) -> None:
    program = """
import sys
from query.cli import main
for command in (["sessions"], ["history", "--session", "deploy-7"], ["count", "port", "--by", "day"]):
    try:
        main([*command, "--tenant", "t", "--data-dir", sys.argv[1]])
    except SystemExit as ended:
        assert ended.code == 0, command
heavy = {"lancedb", "pyarrow", "numpy", "torch", "transformers", "rq", "fastapi", "alembic"}
print("loaded", sorted(heavy & sys.modules.keys()))
"""
    done = subprocess.run(
        [sys.executable, "-c", program, str(data_dir)], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.splitlines()[-1] == "loaded []"
