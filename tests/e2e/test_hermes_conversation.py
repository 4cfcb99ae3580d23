"""The plug-in inside the real hermes-agent: its loader, its MemoryManager, its conversations, and what is away."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from hermes_model import Model, running_model
from hermes_session import Hermes, hermes_command, make_home, running_hermes
from system import Cli, stop, up

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

FACT = "My cat is called Wilhelmine and she is deaf."
BUDGET = 1.5
TURN_SECONDS = 1.0
"""Far more than a turn takes here without recall, once Hermes is warm."""


@dataclass
class World:
    """A system that is up, its service, and a home whose plug-in knows it."""

    cli: Cli
    model: Model
    home: Path
    url: str

    def tenant(self, home: Path | None = None) -> str:
        status = Cli(self.cli.data_dir, {"HERMES_HOME": str(home or self.home)}).run("hermes", "status", "--json")
        (found,) = [one for one in status.json["homes"] if one["home"] == str(home or self.home)]
        tenant: str = found["tenant"]
        return tenant

    def said(self, tenant: str) -> list[tuple[str, str]]:
        """(session, content) of all that can be recalled."""
        drained = self.cli.run("drain", "--timeout", "60")
        assert drained.code == 0, drained.err
        hits = self.cli.recalled("cat number", tenant, "-k", "50", "--no-fold")
        return sorted((hit["session_id"], hit["content"]) for hit in hits)


@contextmanager
def serving(cli: Cli, port: int = 0) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    process = cli.start("serve", "--port", str(port), "--json")
    assert process.stdout is not None
    try:
        while not (line := process.stdout.readline()).startswith(b'{"url"'):
            assert line, "serve ended"
        yield process, json.loads(line)["url"]
    finally:
        process.send_signal(signal.SIGCONT)
        stop(process)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("hermes")
    cli = Cli(folder / "data")
    with up(cli), serving(cli) as (_, url), running_model() as model:
        yield World(cli, model, make_home(folder / "home", cli.data_dir, url=url), url)


@pytest.fixture(scope="module")
def hermes(world: World) -> Iterator[Hermes]:
    with running_hermes(world.home, world.model.url) as process:
        yield process


def test_its_loader_finds_the_provider_and_loads_nothing_heavy(world: World, hermes: Hermes) -> None:
    found = hermes("load", "scope-recall")
    assert (found["name"], found["available"], found["heavy"]) == ("scope-recall", True, [])
    assert "agent.memory_provider" in found["bases"]
    assert {"transport", "url", "api_key", "redact"} <= {field["key"] for field in found["schema"]}
    assert found["backup"] == [str(world.cli.data_dir / "spool")]


def test_the_commands_of_the_page_make_hermes_use_it(world: World, tmp_path: Path) -> None:
    home = make_home(tmp_path / "home", world.cli.data_dir)
    (home / "config.yaml").unlink()
    page = (Path(__file__).parents[2] / "docs" / "hermes.md").read_text()
    commands = [line.removeprefix("$ hermes ").split() for line in page.splitlines() if line.startswith("$ hermes ")]
    assert ["config", "set", "memory.provider", "scope-recall"] in commands
    for command in commands:
        assert hermes_command(home, *command).returncode == 0
    assert "scope-recall  (API key / local) ← active" in hermes_command(home, "memory", "status").stdout
    assert (
        Cli(world.cli.data_dir, {"HERMES_HOME": str(home)}).run("hermes", "status", "--json").json["homes"][0]["active"]
    )


def test_its_memory_manager_drives_a_session(world: World, hermes: Hermes) -> None:
    facts = {"hermes_home": str(world.home), "platform": "matrix", "user_id": "@vera:example.org"}
    hermes.manage("m1", "initialize_all", "m1", **facts)
    assert "scope-recall" in hermes.manage("m1", "build_system_prompt")
    hermes.manage("m1", "sync_all", "The spare key hangs behind the barometer.", "Noted.", session_id="m1")
    assert hermes.manage("m1", "flush_pending", 10)
    assert world.cli.run("drain").code == 0
    hermes.manage("m2", "initialize_all", "m2", **facts)
    block = hermes.manage("m2", "prefetch_all", "Where does the spare key hang?")
    assert "behind the barometer" in block
    assert len(block) < 10_000
    assert hermes.manage("m2", "prefetch_all", "thanks!") == ""
    assert hermes.manage("m1", "prefetch_all", "Where does the spare key hang?") == "", "the live session has it"
    hermes.manage("m1", "queue_prefetch_all", "Where?", session_id="m1")
    ended = hermes("manage", "m1", "shutdown_all")
    assert ended["seconds"] < 5


def test_what_one_session_heard_is_in_the_next_ones_prompt_and_in_nobody_elses(world: World, hermes: Hermes) -> None:
    first = hermes.say("one", FACT)
    assert {"recall", "remember", "forget_memory"} <= set(first["tools"])
    hermes("close", "one")
    assert world.cli.run("drain").code == 0
    hermes.say("two", "What is the name of my cat?")
    (prompt,) = world.model.prompts("What is the name of my cat?")
    assert "Wilhelmine" in prompt
    assert "# Long-term memory (scope-recall)" in prompt
    others: list[dict[str, Any]] = [
        {"user_id": "7", "platform": "telegram"},
        {"user_id": "8", "platform": "telegram", "chat_type": "group", "chat_id": "c"},
        {"platform": "telegram", "chat_id": "c", "chat_type": "group"},
        {"platform": "api_server"},
    ]
    for number, who in enumerate(others):
        question = f"What is the name of my cat, asks number {number}?"
        hermes.say(f"other-{number}", question, **who)
        (prompt,) = world.model.prompts(question)
        assert "Wilhelmine" not in prompt, who
    profile = make_home(world.home / "profiles" / "coder", world.cli.data_dir, url=world.url)
    with running_hermes(profile, world.model.url) as coder:
        coder.say("two", "What is the name of my cat, asks a coder?")
    (prompt,) = world.model.prompts("asks a coder")
    assert "Wilhelmine" not in prompt
    assert world.tenant() != world.tenant(profile)


def test_a_turn_said_live_and_imported_later_is_one(world: World, tmp_path: Path) -> None:
    home = make_home(tmp_path / "home", world.cli.data_dir, url=world.url)
    with running_hermes(home, world.model.url) as hermes:
        hermes.say("twice", "Cat number eleven is grey.")
        hermes.say("twice", "Cat number twelve is blue.")
        tenant = world.tenant(home)
        assert len(world.said(tenant)) == 4
        imported = world.cli.run("backfill", str(home / "state.db"), "--tenant", tenant, "--json")
        assert (imported.json["imported"], imported.json["already_there"]) == (0, 4), imported.out + imported.err
        hermes.say("twice", "Cat number thirteen is red.")
        hermes("close", "twice")
    assert len(world.said(tenant)) == 6


def test_the_model_remembers_and_recalls_by_its_tools(world: World, hermes: Hermes) -> None:
    calls = iter([("remember", {"content": "The harbour pilot prefers tea with salt."}), "Kept."])
    world.model.reply = lambda messages: next(calls)
    assert hermes.say("tools-1", "Keep that in mind.")["answer"] == "Kept."
    assert world.cli.run("drain").code == 0
    results: list[str] = []

    def look(messages: list[dict[str, Any]]) -> Any:
        if messages[-1]["role"] != "tool":
            return "recall", {"query": "harbour pilot tea"}
        results.append(messages[-1]["content"])
        return "Salt."

    world.model.reply = look
    assert hermes.say("tools-2", "ok")["answer"] == "Salt."
    found = json.loads(results[0])["results"]
    assert any(hit["content"] == "The harbour pilot prefers tea with salt." for hit in found)
    assert all("#" in hit["id"] for hit in found)
    world.model.reply = lambda messages: "Noted."


def test_nothing_waits_or_is_lost_while_redis_and_then_the_service_are_away(tmp_path: Path) -> None:
    cli = Cli(tmp_path / "data")
    with running_model() as model, serving(cli) as (service, url):
        home = make_home(tmp_path / "home", cli.data_dir, url=url)
        world = World(cli, model, home, url)
        expected = []

        def said(hermes: Hermes, number: int, most: float) -> None:
            text = f"Cat number {number} sleeps in drawer {number}."
            assert hermes.say("away", text)["seconds"] < most, number
            expected.append(("away", text))

        with running_hermes(home, model.url) as hermes:
            with up(cli):
                hermes.say("warm", "Cat number 0 is awake.")
                said(hermes, 1, TURN_SECONDS + BUDGET)
            said(hermes, 2, TURN_SECONDS + BUDGET)  # Redis is away
            service.send_signal(signal.SIGSTOP)
            said(hermes, 3, TURN_SECONDS + BUDGET)  # and the service hangs
            said(hermes, 4, TURN_SECONDS + BUDGET)  # it is asked again, within the budget
            stop_hanging(service)
            said(hermes, 5, TURN_SECONDS)  # nor is it there
            ended = hermes("close", "away")
            assert ended["seconds"] < 5
            assert ended["drain"]["abandoned_writes"] == 0
        with up(cli):
            assert set(expected) <= set(world.said(world.tenant()))


def stop_hanging(service: subprocess.Popen[bytes]) -> None:
    service.kill()
    service.wait()
