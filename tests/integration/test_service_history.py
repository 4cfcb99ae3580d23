"""Sessions, history and count: the commands and the routes over one catalog say the same, each to its own tenant."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from click.testing import CliRunner
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import query.history
from fake_service import served
from filled_catalog import NOON, event, store
from producers.recall_client import RecallClient
from query.api.app import create_app
from query.cli import main
from served import LOOPBACK, make_key, settings_of
from workers.stores.catalog import Catalog

pytestmark = pytest.mark.integration

ODD_SESSIONS = ["a/b", "turns", "a/turns/turns", "..", ".", "?x=1#y", "%2F", "a b+c", "会话 7", "x' OR '1'='1", "%"]
EVENTS = [
    event("deploy-7", 0, "user", "Which port does the Proxy use?", agent_id="ops", created_at=NOON),
    event("deploy-7", 1, "assistant", "Port 8443, since the move to ＴＬＳ.", agent_id="ops", speaker="Ada"),
    event("deploy-7", 2, "tool", "port " * 500, created_at=NOON + timedelta(days=1)),
    event("chat-2", 0, "user", "证书过期了，换证书。100% [red]sure[/red] \x1b[31m", source="chat"),
    *[event(session, 0, content=f"odd {session}") for session in ODD_SESSIONS],
    event("deploy-7", 0, "user", "swordfish port", tenant="other"),
    event("theirs", 0, "user", "swordfish port", tenant="other"),
]


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("history") / "data"
    with closing(Catalog.open(settings_of(folder).catalog_location, create=True)) as catalog:
        store(catalog, EVENTS)
    return folder


@pytest.fixture(scope="module")
def client(data_dir: Path) -> Iterator[TestClient]:
    with TestClient(create_app(settings_of(data_dir)), LOOPBACK) as client:
        yield client


@pytest.fixture(scope="module")
def keyed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[TestClient, dict[str, str]]]:
    """A service of its own, that answers nobody without a key; the keys by tenant, and one that may only push."""
    folder = tmp_path_factory.mktemp("keyed") / "data"
    with closing(Catalog.open(settings_of(folder).catalog_location, create=True)) as catalog:
        store(catalog, EVENTS)
    keys = {tenant: make_key(folder, tenant, "recall")[1] for tenant in ("t", "other")}
    keys["pusher"] = make_key(folder, "t", "push")[1]
    with TestClient(create_app(settings_of(folder).model_copy(update={"api_rate": 0.0})), LOOPBACK) as client:
        yield client, keys


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
    assert [turn["content"] for turn in answer["turns"]] == [one.content for one in EVENTS[:3]]
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


def test_a_session_is_found_whatever_its_id(data_dir: Path) -> None:
    with served(create_app(settings_of(data_dir))) as url, RecallClient(url) as memory:
        for session in ODD_SESSIONS:
            assert [turn.content for turn in memory.history(session, tenant="t").turns] == [f"odd {session}"]
            found = said(data_dir, "history", "--session", session)["turns"]
            assert [turn["content"] for turn in found] == [f"odd {session}"]
        assert memory.count("port", tenant="t", since=NOON + timedelta(hours=1), by="day").groups[0].day == "2026-02-01"
        assert memory.sessions(tenant="t", limit=1).total == 2 + len(ODD_SESSIONS)


def test_a_long_session_comes_in_answers_of_bounded_size(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    for bound, value, sizes in (("MAX_TURNS", 2, [2, 1]), ("MAX_CHARS", 40, [1, 1, 1]), ("MAX_CHARS", 80, [2, 1])):
        with monkeypatch.context() as patch:
            patch.setattr(query.history, bound, value)
            given: list[int] = []
            found: list[str] = []
            left_out = 3
            while left_out:
                answer = get(client, "/v1/sessions/deploy-7/turns", skip=len(found), last=3)
                found += [turn["content"] for turn in answer["turns"]]
                given.append(len(answer["turns"]))
                left_out = answer["left_out"]
                assert answer["total"] == len(found) + left_out
            assert (given, found) == (sizes, [one.content for one in EVENTS[:3]])
    assert get(client, "/v1/sessions/deploy-7/turns", skip=9) | {"turns": []} == {
        "session_id": "deploy-7", "turns": [], "total": 3, "left_out": 0
    }  # fmt: skip


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
    ("path", "parameters", "reason"),
    [
        ("/v1/sessions", {"tenant": None}, "tenant: missing"),
        ("/v1/sessions", {"tenant": ""}, "tenant: string should have at least 1 character"),
        ("/v1/sessions", {"limit": 0}, "limit: input should be greater than or equal to 1"),
        ("/v1/sessions", {"session": "x"}, "session: unknown field; /openapi.json lists them"),
        ("/v1/sessions", {"agents": "a\0"}, "agent: holds a NUL"),
        ("/v1/sessions/%00/turns", {}, "session: holds a NUL"),
        ("/v1/sessions//turns", {}, "session_id: string should have at least 1 character"),
        (f"/v1/sessions/{'s' * 257}/turns", {}, "session_id: string should have at most 256 characters"),
        ("/v1/sessions/s/turns", {"roles": "robot"}, "roles.0: input should be 'user'"),
        ("/v1/sessions/s/turns", {"first": 1, "last": 1}, "first and last: give one of them"),
        ("/v1/sessions/s/turns", {"from_turn": 2, "to_turn": 1}, "turns 2 to 1: a lower and a higher index"),
        ("/v1/sessions/s/turns", {"to_turn": 2**63}, "to_turn: input should be less than or equal to"),
        ("/v1/count", {}, "text: missing"),
        ("/v1/count", {"text": ""}, "text: string should have at least 1 character"),
        ("/v1/count", {"text": "a\0"}, "text: holds a NUL"),
        ("/v1/count", {"text": "x", "by": "week"}, "by: input should be 'day' or 'session'"),
        ("/v1/count", {"text": "x", "since": "2026-01-31T09:00:00"}, "since: '2026-01-31T09:00:00' has no time zone"),
        ("/v1/count", {"text": "x", "since": "20260131"}, "since: a time as text is due"),
        ("/v1/count", {"text": "x", "until": "1.7e9"}, "until: a time as text is due"),
    ],
)
def test_a_wrong_question_is_refused_with_the_field_and_the_reason(
    client: TestClient, path: str, parameters: dict[str, Any], reason: str
) -> None:
    asked = {name: value for name, value in {"tenant": "t", **parameters}.items() if value is not None}
    answer = client.get(path, params=asked)
    assert (answer.status_code, answer.json()["error"][: len(reason)]) == (422, reason)


@pytest.mark.parametrize("path", ["/v1/sessions", "/v1/sessions/deploy-7/turns", "/v1/count?text=swordfish"])
def test_a_key_needs_the_right_to_recall_and_is_for_its_own_tenant(
    keyed: tuple[TestClient, dict[str, str]], path: str
) -> None:
    client, keys = keyed

    def ask(key: str | None, **parameters: str) -> Any:
        url = path + ("&" if "?" in path else "?") + "&".join(f"{n}={v}" for n, v in parameters.items())
        return client.get(url, headers={"authorization": f"Bearer {keys[key]}"} if key else {})

    assert ask(None).status_code == 401
    assert ask("pusher").status_code == 403
    assert ask("t", tenant="other").status_code == 403
    assert "swordfish port" not in ask("t").text
    assert "theirs" not in ask("t").text
    assert ask("other").json() == ask("other", tenant="other").json() != ask("t").json()


names = st.one_of(st.sampled_from(["t", "other", "theirs", "deploy-7", "%", "_"]), st.text(max_size=8))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(session=names, text=names, agents=st.lists(names, max_size=2), sources=st.lists(names, max_size=2))
def test_no_word_of_another_tenant_comes_back_whatever_is_asked(
    keyed: tuple[TestClient, dict[str, str]], session: str, text: str, agents: list[str], sources: list[str]
) -> None:
    client, keys = keyed
    headers = {"authorization": f"Bearer {keys['t']}"}
    asked: list[tuple[str, dict[str, Any]]] = [
        ("/v1/sessions", {"agents": agents, "sources": sources}),
        (f"/v1/sessions/{quote(session, safe='').replace('.', '%2E')}/turns", {}),
        ("/v1/count", {"text": f"swordfish{text}", "sessions": [session]}),
    ]
    for path, parameters in asked:
        answer = client.get(path, params=parameters, headers=headers)
        assert answer.status_code in (200, 422)
        assert "swordfish port" not in answer.text
        assert "theirs" not in [one["session_id"] for one in answer.json().get("sessions", [])]
        assert not answer.json().get("times")


def test_neither_what_was_asked_nor_whose_session_is_in_the_log(
    client: TestClient,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("my secret")

    monkeypatch.setattr("workers.stores.history.History.count", fail)
    answer = client.get("/v1/sessions/my%20secret/turns", params={"tenant": "t"})
    logged = caplog.text + "".join(capfd.readouterr())
    assert answer.status_code == 500
    assert "/v1/sessions/{session_id}/turns" in logged
    assert "secret" not in logged


def test_the_commands_load_neither_models_nor_the_vector_store(data_dir: Path) -> None:
    program = (
        "import sys\nfrom query.cli import main\ntry:\n    main(sys.argv[1:])\nexcept SystemExit:\n    pass\n"
        "heavy = {'lancedb', 'pyarrow', 'numpy', 'torch', 'transformers', 'rq', 'fastapi', 'alembic'}\n"
        "print('loaded', sorted(heavy & sys.modules.keys()))\n"
    )
    for args in (["sessions"], ["history", "--session", "deploy-7"], ["count", "port", "--by", "day"]):
        done = subprocess.run(
            [sys.executable, "-c", program, *args, "--tenant", "t", "--data-dir", str(data_dir)],
            capture_output=True, text=True, timeout=60, check=True,
        )  # fmt: skip
        assert done.stdout.splitlines()[-1] == "loaded []", args
