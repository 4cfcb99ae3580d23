"""`scope-recall forget` as a person and a program use it."""

from __future__ import annotations

from pathlib import Path

import pytest

from system import Cli

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(200)]


def said(tenant: str, session: str, content: str, index: int = 0) -> dict[str, object]:
    return {"tenant": tenant, "session_id": session, "turn_index": index, "role": "user", "content": content}


def test_a_dry_run_counts_the_command_forgets_and_a_later_push_is_a_new_turn(running: Cli) -> None:
    running.push([said("f", "a", "the heron-basalt waits"), said("f", "a", "the heron-granite too", 1)])
    running.push([said("f", "b", "the heron-slate stays")])
    assert running.run("drain").code == 0
    counted = running.run("forget", "--tenant", "f", "--session", "a", "--dry-run", "--json")
    assert (counted.code, counted.json) == (0, {"turns": 2, "sessions": 1, "dry_run": True})
    assert len(running.recalled("heron", "f")) == 3

    done = running.run("forget", "--tenant", "f", "--session", "a")
    assert done.code == 0, done.out + done.err
    assert "forgot 2 turns in 2 chunks, 0 on their way" in done.out
    assert "none is left" in done.out
    assert [hit["content"] for hit in running.recalled("heron", "f")] == ["the heron-slate stays"]

    running.push([said("f", "a", "the heron-basalt waits")])
    assert running.run("drain").code == 0
    assert {hit["content"] for hit in running.recalled("heron", "f")} == {
        "the heron-slate stays",
        "the heron-basalt waits",
    }


def test_forgetting_what_was_never_said_changes_nothing(running: Cli) -> None:
    running.push([said("g", "a", "the kestrel waits")])
    assert running.run("drain").code == 0
    done = running.run("forget", "--tenant", "g", "--session", "A", "--json")
    assert (done.code, done.json["turns"], done.json["verified"]) == (0, 0, True)
    assert len(running.recalled("kestrel", "g")) == 1


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ([], "--tenant is missing"),
        (["--tenant", ""], "tenant: 0 characters"),
        (["--tenant", "t", "--session", "x" * 300], "session: 300 characters"),
        (["--tenant", "t", "--before", "yesterday"], "--before 'yesterday': not a date"),
        (["--tenant", "t", "--before", "2026-01-31T09:00:00"], "has no time zone"),
        (["--tenant", "t", "--resume"], "leave out the other options"),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_line(running: Cli, arguments: list[str], named: str) -> None:
    refused = running.run("forget", *arguments)
    assert refused.code == 2
    assert named in refused.err
    assert len(refused.err.strip().splitlines()) == 1


def test_nothing_is_made_where_nothing_is(tmp_path: Path) -> None:
    cli = Cli(tmp_path / "typo")
    refused = cli.run("forget", "--tenant", "t")
    assert refused.code == 2
    assert "no data dir" in refused.err
    assert not cli.data_dir.exists()


def test_there_is_nothing_to_resume(running: Cli) -> None:
    resumed = running.run("forget", "--resume")
    assert (resumed.code, resumed.out.strip()) == (0, "no forget was interrupted")
