"""Keys and addresses: who is answered by a real service, and what a key may do."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from producers.api_file import api_url
from producers.errors import Busy, UsageError
from query.api.app import create_app
from query.api.listening import listen, only_this_machine, url_of
from served import LOOPBACK, fill, make_key, served, settings_of
from system import Cli, stop
from workers.stores.api_keys import RIGHTS

pytestmark = pytest.mark.integration

QUESTION = {"query": "which port does the proxy use?"}
JSON = {"content-type": "application/json"}


@pytest.fixture
def filled(tmp_path: Path) -> Path:
    fill(tmp_path / "data")
    return tmp_path / "data"


def bearer(text: str) -> dict[str, str]:
    return {"authorization": f"Bearer {text}"}


def test_a_key_opens_its_tenant_and_no_other_and_a_revoked_one_nothing_at_once(filled: Path) -> None:
    with served(filled) as client:
        open_ = client.post("/v1/recall", json=QUESTION | {"tenant": "other"})
        assert [hit["tenant"] for hit in open_.json()["hits"]] == ["other"], "without keys this machine sees all"

        made = Cli(filled).run("keys", "create", "--tenant", "acme", "--name", "hermes", "--json").json
        key = bearer(made["key"])
        assert client.post("/v1/recall", json=QUESTION | {"tenant": "other"}).status_code == 401, "from now on"
        answer = client.post("/v1/recall", json=QUESTION, headers=key)
        assert {hit["tenant"] for hit in answer.json()["hits"]} == {"acme"}
        assert client.post("/v1/recall", json=QUESTION | {"tenant": "acme"}, headers=key).json()["hits"]
        for named in ("other", "scope-recall canary"):
            refused = client.post("/v1/recall", json=QUESTION | {"tenant": named}, headers=key)
            assert (refused.status_code, "9999" in refused.text) == (403, False)

        listed = Cli(filled).run("keys", "list", "--json").json["keys"]
        [one] = listed
        assert (one["id"], one["tenant"], one["rights"]) == (made["id"], "acme", ["push", "recall"])
        assert made["key"] not in json.dumps(listed)
        assert Cli(filled).run("keys", "revoke", made["id"]).code == 0
        assert client.post("/v1/recall", json=QUESTION, headers=key).status_code == 401
        assert client.post("/v1/recall", json=QUESTION | {"tenant": "acme"}).status_code == 401, "nor without"


def test_whoever_has_no_good_key_is_refused_before_the_body_is_read(filled: Path) -> None:
    _, text = make_key(filled, "acme")
    with TestClient(create_app(settings_of(filled)), LOOPBACK) as client:

        def status(header: str | None, path: str = "/v1/recall", body: bytes = json.dumps(QUESTION).encode()) -> int:
            headers = {name.encode(): value.encode() for name, value in JSON.items()}
            if header is not None:
                headers[b"authorization"] = header.encode()
            return client.post(path, content=body, headers=headers).status_code

        assert status(f"Bearer {text}") == status(f"bearer {text}") == 200
        for wrong in (None, "", text, "Bearer", f"Bearer {text}x", f"Bearer {text[:-1]}", f"Basic {text}", "Bearer ü"):
            assert status(wrong) == 401, wrong
        twice = [*JSON.items(), *bearer(text).items(), *bearer(text).items()]
        assert client.post("/v1/recall", json=QUESTION, headers=twice).status_code == 401, "two headers"
        assert status(None, body=b"not JSON") == 401, "the body is not even parsed"
        assert status(None, path="/v1/recall/") == status(None, path="/v1/nothing") == 401
        assert client.post("/v1/recall", json=QUESTION).headers["www-authenticate"] == "Bearer"
        assert client.get("/healthz").status_code == 200


@pytest.mark.parametrize("right", RIGHTS)
def test_a_key_can_do_what_its_rights_say_and_nothing_else(filled: Path, right: str) -> None:
    _, text = make_key(filled, "acme", right)  # type: ignore[arg-type]
    turn = {"session_id": "s", "turn_index": 0, "role": "user", "content": "hello"}
    with TestClient(create_app(settings_of(filled)), LOOPBACK, headers=bearer(text)) as client:
        got = {
            "push": client.post("/v1/turns", json=turn).status_code,
            "recall": client.post("/v1/recall", json=QUESTION).status_code,
            "forget": client.post("/v1/forget", json={"dry_run": True}).status_code,
            "admin": client.get("/v1/status").status_code,
        }
    assert [name for name, code in got.items() if code < 300] == [right]
    assert {code for name, code in got.items() if name != right} == {403}


def test_a_key_that_asks_too_often_is_told_when_to_come_again(filled: Path) -> None:
    _, text = make_key(filled, "acme")
    settings = settings_of(filled).model_copy(update={"api_rate": 2.0})
    with TestClient(create_app(settings), LOOPBACK, headers=bearer(text)) as client:
        answers = [client.post("/v1/recall", json=QUESTION) for _ in range(4)]
    assert 200 in {answer.status_code for answer in answers}
    assert answers[-1].status_code == 429
    assert answers[-1].headers["retry-after"] == "1"


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8420", "10.0.0.1", ""])
def test_without_keys_a_web_page_cannot_ask_under_a_name_of_its_own(filled: Path, host: str) -> None:
    with TestClient(create_app(settings_of(filled)), LOOPBACK) as client:
        assert client.post("/v1/recall", json=QUESTION | {"tenant": "acme"}, headers={"host": host}).status_code == 403
        for known in ("127.0.0.1:8420", "localhost", "[::1]:8420", "LOCALHOST:1"):
            asked = client.post("/v1/recall", json=QUESTION | {"tenant": "acme"}, headers={"host": known})
            assert asked.status_code == 200, known


def test_nor_can_it_send_a_type_that_browsers_send_unasked(filled: Path) -> None:
    with TestClient(create_app(settings_of(filled)), LOOPBACK) as client:
        for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "application/jsonx", ""):
            for path in ("/v1/recall", "/v1/turns", "/v1/forget"):
                answer = client.post(path, content=b'{"tenant": "acme"}', headers={"content-type": kind})
                assert answer.status_code == 415, (path, kind)


def test_a_service_that_others_reach_answers_nobody_without_a_key(filled: Path) -> None:
    with TestClient(create_app(settings_of(filled), loopback=False), LOOPBACK) as client:
        assert client.post("/v1/recall", json=QUESTION | {"tenant": "acme"}).status_code == 401


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "::ffff:0.0.0.0"])
def test_without_a_key_only_this_machine_is_served(host: str) -> None:
    with pytest.raises(UsageError, match=r"others can reach this address.*scope-recall keys create --tenant NAME"):
        listen(host, 0, lambda: False)


@pytest.mark.parametrize(("host", "keys"), [("127.0.0.1", False), ("localhost", False), ("0.0.0.0", True)])
def test_loopback_needs_no_key_and_other_addresses_work_with_one(host: str, keys: bool) -> None:
    with closing(listen(host, 0, lambda: keys)) as listener:
        assert url_of(listener) == f"http://{listener.getsockname()[0]}:{listener.getsockname()[1]}"
        assert only_this_machine(listener) == (host != "0.0.0.0")


@pytest.mark.parametrize("host", ["", "no.such.host.invalid", "a..b", "192.0.2.1"])
def test_an_address_that_cannot_be_used_is_named(host: str) -> None:
    with pytest.raises(UsageError, match=f"--host {host} --port 0: cannot listen there"):
        listen(host, 0, lambda: True)


def test_a_port_in_use_and_an_open_address_end_the_command_with_a_reason(tmp_path: Path) -> None:
    with closing(listen("127.0.0.1", 0, lambda: False)) as taken:
        port = str(taken.getsockname()[1])
        with pytest.raises(Busy):
            listen("127.0.0.1", int(port), lambda: False)
        busy = Cli(tmp_path).run("serve", "--port", port)
    assert (busy.code, busy.out) == (2, "")
    assert f"error: --host 127.0.0.1 --port {port}: cannot listen there" in busy.err
    bare = Cli(tmp_path).run("serve", "--host", "0.0.0.0", "--port", "0")
    assert (bare.code, bare.out) == (2, "")
    assert "scope-recall keys create" in bare.err


def test_a_second_service_of_a_data_dir_says_that_the_first_one_is_found(tmp_path: Path) -> None:
    with served(tmp_path) as client:
        second = Cli(tmp_path).start("serve", "--port", "0", "--json")
        assert second.stdout is not None
        said = [second.stdout.readline().decode() for _ in range(3)]
        assert f"answers at {api_url(tmp_path)}:" in said[0]
        assert [line[:7] for line in said[1:]] == ["serving", '{"url":']
        assert stop(second) == 0
        assert client.base_url == api_url(tmp_path), "it took nothing with it"


def test_a_body_over_the_limit_is_refused_with_the_limit(filled: Path) -> None:
    with served(filled, SCOPE_RECALL_API_BODY_BYTES="2048") as client:
        for body in (b"x" * 3000, b"x" * (3 << 20)):
            answer = client.post("/v1/turns", content=body, headers=JSON)
            assert (answer.status_code, "2,048 bytes" in answer.text) == (413, True)
        chunked = client.post("/v1/turns", content=iter([b"x" * 1500] * 4), headers=JSON)
        assert chunked.status_code == 413


def test_a_request_id_comes_back_and_one_that_could_do_harm_is_replaced(filled: Path) -> None:
    with TestClient(create_app(settings_of(filled)), LOOPBACK) as client:
        for path in ("/healthz", "/v1/nothing"):
            assert client.get(path, headers={"X-Request-Id": "turn-7"}).headers["x-request-id"] == "turn-7"
        for harmful in ("a b", "x" * 129, "", '"}{'):
            made = client.get("/healthz", headers={"X-Request-Id": harmful}).headers["x-request-id"]
            assert (made != harmful, len(made)) == (True, 16)


def test_many_keys_of_many_callers_each_see_their_own(filled: Path) -> None:
    texts = {tenant: make_key(filled, tenant)[1] for tenant in ("acme", "other")}
    with served(filled) as client:
        for tenant in ["acme", "other"] * 5:
            found = client.post("/v1/recall", json=QUESTION, headers=bearer(texts[tenant]))
            assert {hit["tenant"] for hit in found.json()["hits"]} == {tenant}
