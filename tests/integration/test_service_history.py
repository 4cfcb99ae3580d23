"""Sessions, history and count over HTTP: any session's id, bounded answers, each key its own tenant's turns only."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import query.history
from fake_service import served
from filled_catalog import NOON, ODD_SESSIONS, SAID, fill_history
from producers.recall_client import RecallClient
from query.api.app import create_app
from served import LOOPBACK, make_key, settings_of

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fill_history(tmp_path_factory.mktemp("history") / "data")


@pytest.fixture(scope="module")
def client(data_dir: Path) -> Iterator[TestClient]:
    with TestClient(create_app(settings_of(data_dir)), LOOPBACK) as client:
        yield client


@pytest.fixture(scope="module")
def keyed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[TestClient, dict[str, str]]]:
    """A service of its own, that answers nobody without a key; the keys by tenant, and one that may only push."""
    folder = fill_history(tmp_path_factory.mktemp("keyed") / "data")
    keys = {tenant: make_key(folder, tenant, "recall")[1] for tenant in ("t", "other")}
    keys["pusher"] = make_key(folder, "t", "push")[1]
    with TestClient(create_app(settings_of(folder).model_copy(update={"api_rate": 0.0})), LOOPBACK) as client:
        yield client, keys


def get(client: TestClient, path: str, **parameters: Any) -> Any:
    answer = client.get(path, params={"tenant": "t", **parameters})
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_a_session_is_found_whatever_its_id(data_dir: Path) -> None:
    with served(create_app(settings_of(data_dir))) as url, RecallClient(url) as memory:
        for session in ODD_SESSIONS:
            assert [turn.content for turn in memory.history(session, tenant="t").turns] == [f"odd {session}"]
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
            assert (given, found) == (sizes, [one.content for one in SAID[:3]])
    assert get(client, "/v1/sessions/deploy-7/turns", skip=9) | {"turns": []} == {
        "session_id": "deploy-7", "turns": [], "total": 3, "left_out": 0
    }  # fmt: skip


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
        (f"/v1/sessions/{'s' * 257}/turns", {}, "session_id: 257 characters, over the limit of 256"),
        ("/v1/sessions/s/turns", {"roles": "robot"}, "roles.0: input should be 'user'"),
        ("/v1/sessions/s/turns", {"first": 1, "last": 1}, "first and last: give one of them"),
        ("/v1/sessions/s/turns", {"from_turn": 2, "to_turn": 1}, "turns 2 to 1: a lower and a higher index"),
        ("/v1/sessions/s/turns", {"to_turn": 2**63}, "to_turn: input should be less than or equal to"),
        ("/v1/count", {}, "text: missing"),
        ("/v1/count", {"text": ""}, "text: string should have at least 1 character"),
        ("/v1/count", {"text": "a\0"}, "text: holds a NUL"),
        ("/v1/count", {"text": "x" * 4001}, "text: 4,001 characters, over the limit of 4,000"),
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
        assert answer.status_code in (200, 404 if "\n" in session else 200, 422)
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
