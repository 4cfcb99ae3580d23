"""The query service as `up` runs it: turns in by HTTP, recalled by HTTP, forgotten by HTTP; and the OpenAPI held to."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from served import make_key
from system import Cli, up
from workers.stores.api_keys import RIGHTS

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(200)]

WITH_SERVICE = {"SCOPE_RECALL_SERVE": "true", "SCOPE_RECALL_API_PORT": "0"}
SCHEMATHESIS_SECONDS = 25
SCHEMATHESIS = Path(__file__).with_name("schemathesis.toml")


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cli]:
    cli = Cli(tmp_path_factory.mktemp("service") / "data", WITH_SERVICE)
    with up(cli):
        yield cli


@pytest.fixture
def client(serving: Cli) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=url_of(serving), trust_env=False, timeout=30) as client:
        yield client


def url_of(cli: Cli) -> str:
    url: str = cli.run("status", "--json").json["api"]["url"]
    return url


def wait_for(condition: Callable[[], Any], seconds: float = 30.0) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.1)
    return found


def recalled(client: httpx.Client, tenant: str) -> list[str]:
    answer = client.post("/v1/recall", json={"query": "where does the ferry go?", "tenant": tenant})
    return [hit["content"] for hit in answer.json().get("hits", [])]


def test_a_turn_goes_in_comes_out_and_is_forgotten_over_http(client: httpx.Client, serving: Cli) -> None:
    turn = {"tenant": "path", "session_id": "s", "turn_index": 0, "role": "user", "content": "the ferry goes to Oban"}
    assert client.post("/v1/turns", json=turn).json()["results"][0]["status"] == "accepted"
    assert wait_for(lambda: recalled(client, "path")) == ["the ferry goes to Oban"]
    assert client.post("/v1/turns", json=turn).status_code == 202, "again changes nothing"
    client.post("/v1/turns", json=turn | {"content": "the ferry goes to Mull"})
    wait_for(lambda: recalled(client, "path") == ["the ferry goes to Mull"])

    counted = client.post("/v1/forget", json={"tenant": "path", "dry_run": True}).json()
    assert counted == {"turns": 1, "sessions": 1, "dry_run": True}
    forgotten = client.post("/v1/forget", json={"tenant": "path"}).json()
    assert (forgotten["turns"], forgotten["chunks"], forgotten["verified"]) == (1, 1, True)
    assert recalled(client, "path") == []
    command = serving.run("forget", "--tenant", "path", "--json")
    assert command.json.keys() == forgotten.keys()


def test_it_is_ready_once_its_own_turn_came_back_and_that_is_one_turn_however_often(
    client: httpx.Client, serving: Cli
) -> None:
    assert client.get("/healthz").json() == {"status": "ok"}
    ready = client.get("/readyz")
    assert (ready.status_code, ready.json()["ready"], ready.json()["degraded"]) == (200, True, [])
    before = serving.run("status", "--json").json["catalog"]["turns"]
    for _ in range(5):
        assert client.get("/readyz").status_code == 200
    assert serving.run("status", "--json").json["catalog"]["turns"] == before
    reserved = {"tenant": "scope-recall canary", "session_id": "s", "turn_index": 0, "role": "user", "content": "x"}
    pushed = serving.push([reserved])
    assert (pushed.json["accepted"], pushed.json["rejected"]) == (0, 1), "nobody else has its tenant"


def test_status_over_http_is_what_the_command_says(client: httpx.Client, serving: Cli) -> None:
    asked, said = client.get("/v1/status").json(), serving.run("status", "--json").json
    assert asked.keys() == said.keys()
    assert asked["api"] == said["api"] == {"url": str(client.base_url).rstrip("/")}
    assert "serve" in {child["name"] for child in said["processes"]["children"]}


def test_a_service_that_is_killed_is_started_again_and_serves(client: httpx.Client, serving: Cli) -> None:
    killed = json.loads((serving.data_dir / "api.json").read_text())["pid"]
    os.kill(killed, signal.SIGKILL)
    url = wait_for(lambda: url if (url := url_of(serving)) != str(client.base_url).rstrip("/") else None)
    assert httpx.get(f"{url}/healthz", trust_env=False).status_code == 200


def test_the_service_keeps_to_its_openapi(serving: Cli) -> None:
    """schemathesis: no 5xx, no status or shape that is not documented, nothing without a key, wrong data refused."""
    _, key = make_key(serving.data_dir, "acme", *RIGHTS)
    command = [sys.executable, "-m", "schemathesis.cli", "--config-file", str(SCHEMATHESIS)]
    options = ["--header", f"Authorization: Bearer {key}", "--max-time", str(SCHEMATHESIS_SECONDS)]
    done = subprocess.run(
        [*command, "run", f"{url_of(serving)}/openapi.json", *options],
        cwd=serving.data_dir.parent,
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert serving.run("status", "--json").json["streams"]["dead"] == 0


def test_a_port_that_is_taken_is_said_and_waited_for_while_the_rest_works(tmp_path: Path) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = str(taken.getsockname()[1])
        cli = Cli(tmp_path / "data", {"SCOPE_RECALL_SERVE": "true", "SCOPE_RECALL_API_PORT": port})
        process = cli.start("up")
        try:
            degraded = wait_for(lambda: [line for line in _status(cli)["degraded"] if "serve runs and" in line], 60)
            assert f"--port {port}: cannot listen there" in degraded[0]
            taken.close()
            assert wait_for(lambda: _status(cli)["api"]["url"]) == f"http://127.0.0.1:{port}"
            children = {child["name"]: child for child in _status(cli)["processes"]["children"]}
            assert children["serve"]["restarts"] == 0, "no crash loop"
        finally:
            process.send_signal(signal.SIGTERM)
            said = process.communicate(timeout=40)[0].decode()
    assert process.returncode == 0
    assert "serve: troubled" in said


def _status(cli: Cli) -> dict[str, Any]:
    result = cli.run("status", "--json")
    return result.json if result.code in (0, 1) else {"degraded": [], "api": {"url": None}}
