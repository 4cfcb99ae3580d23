"""`scope-recall reembed` as it is called: what it does, says, refuses, and its exit codes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from producers.settings import Settings
from stepped import Stepped, turn
from workers.commands.reembed import reembed
from workers.maintenance.reembed import models
from workers.stores.catalog import Catalog

pytestmark = pytest.mark.integration


class Command:
    """The command on a stepped system with some turns."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        system = Stepped(settings)
        system.push(
            *[
                turn(f"turn {n} of the heron at the weir, kestrel number{n} and quartz", n, tenant="t")
                for n in range(50)
            ]
        )
        system.settle()
        models.keep(set())

    def run(self, *arguments: str) -> Result:
        environment = {**self.settings.as_environment(), "COLUMNS": "200"}
        return CliRunner().invoke(reembed, arguments, env=environment)

    def json(self, *arguments: str) -> Any:
        return json.loads(self.run(*arguments, "--json").stdout)

    def states(self) -> dict[str, str]:
        catalog = Catalog.open(self.settings.catalog_location)
        found = {one.space.embedder: one.state for one in catalog.spaces.all()}
        catalog.close()
        return found

    def probes(self) -> list[str]:
        catalog = Catalog.open(self.settings.catalog_location)
        found = [one.query for one in catalog.probes.all()]
        catalog.close()
        return found


@pytest.fixture
def command(shared_settings: Settings) -> Command:
    return Command(shared_settings)


def test_it_embeds_compares_switches_and_goes_back(command: Command) -> None:
    done = command.run("--model", "hashing:128")
    assert done.exit_code == 0, done.output
    assert "recall reads hashing-v1-128 now" in done.stdout
    assert "recall@10 on 50 parts of stored turns: 1.000 before" in done.stdout
    assert "stays for 7 days" in done.stdout
    assert command.states() == {"hashing-v1": "standby", "hashing-v1-128": "active"}
    shown = command.json("--status")["spaces"]
    assert [(one["state"], one["setting"]) for one in shown] == [("active", "hashing:128"), ("standby", "hashing")]
    assert (shown[1]["filled"], shown[1]["turns"]) == (50, 50)
    back = command.run("--rollback")
    assert (back.exit_code, back.stdout) == (0, "recall reads hashing-v1 again\n")
    assert command.states() == {"hashing-v1": "active", "hashing-v1-128": "standby"}
    again = command.json("--model", "hashing:128")
    assert (again["switched"], again["problem"], again["filled"]) == (True, None, 50)


def test_a_worse_model_is_an_exit_code_of_1_until_somebody_decides(command: Command) -> None:
    worse = command.run("--model", "hashing:2")
    assert worse.exit_code == 1
    assert "with hashing-v1-2" in worse.stderr
    assert "--switch-anyway" in worse.stderr
    assert "Traceback" not in worse.output
    other = command.run("--model", "hashing:128")
    assert other.exit_code == 2
    assert "hashing-v1-2 " in other.stderr
    assert "--cancel" in other.stderr
    assert command.run("--switch-anyway").exit_code == 0
    assert command.states() == {"hashing-v1": "standby", "hashing-v1-2": "active"}


def test_it_can_be_begun_only_shown_and_cancelled(command: Command) -> None:
    begun = command.run("--model", "hashing:128", "--detach", "--rate", "3")
    assert begun.exit_code == 0
    assert "0 of 50 turns (0.0%)" in begun.stdout
    assert command.states()["hashing-v1-128"] == "building"
    assert command.run("--cancel").exit_code == 0
    assert command.states()["hashing-v1-128"] == "dropping"
    assert command.run("--cancel").exit_code == 2


def test_a_standby_that_is_built_again_can_still_be_gone_back_to(command: Command) -> None:
    assert command.run("--model", "hashing:128").exit_code == 0
    assert command.run("--model", "hashing", "--detach").exit_code == 0
    assert command.states() == {"hashing-v1": "building", "hashing-v1-128": "active"}
    cancelled = command.run("--cancel")
    assert "it stays for a rollback" in cancelled.stdout
    assert command.states() == {"hashing-v1": "standby", "hashing-v1-128": "active"}
    assert command.run("--model", "hashing", "--detach").exit_code == 0
    assert command.run("--rollback").exit_code == 0
    assert command.states() == {"hashing-v1": "active", "hashing-v1-128": "standby"}


MISTAKES = [
    ((), "give one of"),
    (("--status", "--rollback"), "give one of"),
    (("--status", "--rate", "3"), "go with --model"),
    (("--rollback",), "no space to go back to"),
    (("--cancel",), "nothing is being built"),
    (("--switch-anyway",), "nothing is being built"),
    (("--model", "hashing"), "recall reads hashing-v1 (64 dimensions"),
    (("--model", "hashign"), "did you mean hashing"),
    (("--model", "hashing:0"), "1 to 4096"),
    (("--model", "hashing:128", "--chunk-tokens", "1000"), "chunk_tokens 1000 is over"),
    (("--model", "hashing:128", "--probes", "none.jsonl"), "No such file"),
]


def test_a_mistake_is_one_clear_line_that_changes_nothing(command: Command) -> None:
    for arguments, why in MISTAKES:
        done = command.run(*arguments)
        assert done.exit_code == 2, arguments
        assert why in done.stderr
        assert len(done.stderr.strip().splitlines()) == 1, done.stderr
        assert command.states() == {"hashing-v1": "active"}


def test_questions_about_other_turns_than_there_are_begin_nothing(command: Command, tmp_path: Path) -> None:
    path = tmp_path / "probes.jsonl"
    path.write_text('{"query": "q", "tenant": "t", "evidence": [{"session_id": "none", "turn_index": 1}]}')
    done = command.run("--model", "hashing:128", "--probes", str(path))
    assert done.exit_code == 2
    assert "of 1 questions none has its evidence stored here" in done.stderr
    assert command.states() == {"hashing-v1": "active"}


def test_a_change_that_is_refused_leaves_the_questions_that_there_were(command: Command, tmp_path: Path) -> None:
    path = tmp_path / "probes.jsonl"
    path.write_text('{"query": "q", "tenant": "t", "evidence": [{"session_id": "s", "turn_index": 1}]}')
    assert command.run("--model", "hashing", "--probes", str(path)).exit_code == 2
    assert command.probes() == []
    assert command.run("--model", "hashing:128", "--probes", str(path), "--detach").exit_code == 0
    assert command.probes() == ["q"]


def test_other_chunks_of_the_same_model_are_another_space(command: Command) -> None:
    done = command.run("--model", "hashing", "--chunk-tokens", "64")
    assert done.exit_code == 0, done.output
    catalog = Catalog.open(command.settings.catalog_location)
    active = catalog.spaces.active()
    catalog.close()
    assert active is not None
    assert (active.space.embedder, active.space.chunk_tokens) == ("hashing-v1", 64)
