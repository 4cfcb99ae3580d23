"""`scope-recall backup` and `restore` as a person and a program use them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from system import Cli, up

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]


def said(index: int, content: str) -> dict[str, object]:
    return {"tenant": "b", "session_id": "s", "turn_index": index, "role": "user", "content": content}


def test_a_running_system_is_copied_checked_and_restored_with_the_same_answers(running: Cli, tmp_path: Path) -> None:
    running.push([said(number, f"heron{number} flies over the river at dawn") for number in range(30)])
    assert running.run("drain").code == 0
    target = tmp_path / "backups" / "monday"
    made = running.run("backup", str(target))
    assert made.code == 0, made.out + made.err
    assert f"backup {target}: " in made.out
    assert "ingest waited" in made.out

    checked = running.run("backup", "--verify", str(target), "--json")
    assert (checked.code, checked.json["sound"], checked.json["turns"]) == (0, True, 30)

    questions = tmp_path / "questions.jsonl"
    asked = [{"query_id": f"q{number}", "query": f"where does heron{number} fly", "tenant": "b"} for number in range(9)]
    questions.write_text("".join(json.dumps(one) + "\n" for one in asked))
    elsewhere = Cli(tmp_path / "elsewhere")
    restored = elsewhere.run("restore", str(target), "--json")
    assert (restored.code, restored.json["turns"]) == (0, 30), restored.out
    answers = [_answers(cli, questions) for cli in (running, elsewhere)]
    assert answers[0] == answers[1]

    with up(elsewhere):
        elsewhere.push([said(30, "the kestrel is new here")])
        assert elsewhere.run("drain").code == 0
        assert elsewhere.recalled("kestrel", "b")[0]["turn_index"] == 30
        refused = elsewhere.run("restore", str(target))
        assert (refused.code, "already running as pid" in refused.err) == (2, True)


def _answers(cli: Cli, questions: Path) -> dict[str, list[int]]:
    """The best of what is found; the scores' last digits depend on how fresh the full-text index is."""
    done = cli.run("recall", "--queries", str(questions), "--json", "-k", "1")
    assert done.code == 0, done.err
    lines = map(json.loads, done.out.splitlines())
    return {line["query_id"]: [hit["turn_index"] for hit in line["hits"]] for line in lines}


def test_what_makes_no_sense_is_refused_in_one_line(running: Cli, tmp_path: Path) -> None:
    nothing = Cli(tmp_path / "nothing")
    for cli, arguments, code, named in (
        (running, ["backup", str(running.data_dir / "saved")], 2, "no forget could be proven"),
        (running, ["backup", "--verify", str(tmp_path)], 1, "is not a backup"),
        (running, ["restore", str(tmp_path / "missing")], 2, "is not a backup"),
        (nothing, ["backup", str(tmp_path / "new")], 2, "no catalog at"),
    ):
        refused = cli.run(*arguments)
        assert (refused.code, named in refused.err) == (code, True), refused
        assert refused.err.strip().count("\n") == 0
    assert not (tmp_path / "new").exists()
