"""`eval` from end to end: a labelled set through a real system, settings compared, an ingest kept and asked again."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from system import Cli, Result, stop
from workers.supervision.tree_state import ChildState, read_state

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(200)]

THINGS = ["ferry", "harbour", "printer", "violin", "garden", "ladder", "kettle", "bicycle", "lantern", "compass"]
CHINESE = ["轮渡", "港口", "打印机", "小提琴", "花园", "梯子"]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two conversations of one language each, and a question about each thing that was said."""
    folder = tmp_path_factory.mktemp("labelled")
    turns: list[dict[str, Any]] = []
    queries: list[dict[str, Any]] = []
    for conversation, things, said, asked in (
        ("en", THINGS, "The {} is kept in room {}.", "where is the {}?"),
        ("zh", CHINESE, "{}放在{}号房间。", "{}在哪里？"),
    ):
        for index, thing in enumerate(things):
            where = {"session_id": f"{conversation}-1", "turn_index": index}
            turns.append(
                {"conversation_id": conversation, "role": "user", "content": said.format(thing, index), **where}
            )
            queries.append(
                {
                    "query_id": f"{conversation}{index}",
                    "query": asked.format(thing),
                    "scope": conversation,
                    "evidence": [where],
                    "category": "place",
                }
            )
    for name, rows in (("turns", turns), ("queries", queries)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    return folder


@pytest.fixture(scope="module")
def cli(files: Path) -> Cli:
    return Cli(files / "data")


def evaluate(cli: Cli, files: Path, *args: str) -> Result:
    return cli.run("eval", str(files / "turns.jsonl"), str(files / "queries.jsonl"), *args, timeout=180)


@pytest.fixture(scope="module")
def compared(cli: Cli, files: Path) -> dict[str, Any]:
    """Three settings over two ingests, both kept."""
    done = evaluate(
        cli, files, "--compare", "narrow:wide=1", "--compare", "embedder=hashing:32",
        "--keep", str(files / "kept"), "--out", str(files / "r.jsonl"), "--plot", str(files / "p.html"), "--json",
    )  # fmt: skip
    assert done.code == 0, done.out + done.err
    answer: dict[str, Any] = done.json
    return answer


def test_each_setting_is_measured_against_the_first_in_every_group(compared: dict[str, Any]) -> None:
    assert compared["overall"]["n"] == 16
    assert compared["overall"]["R@5"] == 1
    assert (compared["turns"], compared["categories"]["place"]["n"]) == (16, 16)
    assert {name: one["n"] for name, one in compared["languages"].items()} == {"han": 6, "latin": 10}
    base, narrow, small = compared["settings"]
    assert (base["name"], narrow["changes"], small["embedder"]) == ("base", {"wide": "1"}, "hashing-v1-32")
    groups = [(one["kind"], one["name"]) for one in narrow["groups"]]
    assert groups == [("all", "all"), ("category", "place"), ("language", "han"), ("language", "latin")]
    assert {"mean", "low", "high", "differing", "beyond_chance"} == set(narrow["groups"][0]["gains"]["R@5"])
    assert "gains" not in base["groups"][0]


def test_each_setting_has_its_results_and_there_is_a_picture(compared: dict[str, Any], files: Path) -> None:
    hits = {}
    for name in ("base", "narrow", "embedder=hashing-32"):
        lines = (files / f"r.{name}.jsonl").read_text().splitlines()
        assert len(lines) == 16
        hits[name] = json.loads(lines[0])["hits"]
    assert len(hits["narrow"]) == 1
    assert len(hits["base"]) > 1
    assert "Gain in R@5 over base" in (files / "p.html").read_text()


def test_a_kept_ingest_is_asked_again_with_the_same_outcome_and_no_system(
    cli: Cli, files: Path, compared: dict[str, Any]
) -> None:
    done = evaluate(cli, files, "--reuse", str(files / "kept"), "--compare", "narrow:wide=1", "--fit", "--json")
    assert done.code == 0, done.out + done.err
    assert "ingesting" not in done.err
    assert done.json["overall"] == compared["overall"]
    assert done.json["settings"][1]["groups"] == compared["settings"][1]["groups"]
    fits = {kind: (fit["in_sample"]["mean"] >= 0, fit["held_out"]) for kind, fit in done.json["fit"].items()}
    assert fits == {"spaced": (True, None), "unspaced": (True, None)}, "each kind is one conversation"
    shown = evaluate(cli, files, "--reuse", str(files / "kept"), "--embedder", "hashing:32")
    assert "hashing-v1-32" in shown.out
    assert "language han" in shown.out


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--compare", "rerankr=none"], "did you mean reranker?"),
        (["--plot", "p.png"], "--plot p.png: name a file that ends with .html or .svg"),
        (["--keep", "a", "--reuse", "b"], "give one of them"),
    ],
)
def test_a_mistake_is_said_before_anything_is_ingested(cli: Cli, files: Path, args: list[str], said: str) -> None:
    done = evaluate(cli, files, *args)
    assert done.code == 2
    assert said in done.err
    assert "Traceback" not in done.err
    assert "ingesting" not in done.err


def test_an_empty_file_is_named(cli: Cli, files: Path) -> None:
    (files / "empty.jsonl").write_text("\n")
    done = cli.run("eval", str(files / "turns.jsonl"), str(files / "empty.jsonl"))
    assert (done.code, done.out) == (2, "")
    assert done.err == f"error: {files / 'empty.jsonl'}: no line in it\n"


def test_an_interrupted_ingest_leaves_nothing_behind(cli: Cli, files: Path, tmp_path: Path) -> None:
    interrupted = Cli(cli.data_dir, {"TMPDIR": str(tmp_path)})
    process = interrupted.start("eval", str(files / "turns.jsonl"), str(files / "queries.jsonl"))
    children: list[ChildState] = []
    deadline = time.monotonic() + 60
    while len(children) < 5:
        assert time.monotonic() < deadline
        assert process.poll() is None
        for folder in tmp_path.glob("scope-recall-*"):
            state = read_state(folder)
            children = [one for one in state.children if one.process] if state else []
        time.sleep(0.02)
    assert stop(process) == 1
    assert [one.name for one in children if one.process and one.process.alive()] == []
    assert list(tmp_path.glob("scope-recall-*")) == []


def test_the_lines_before_a_question_are_read_and_can_be_left_out(
    cli: Cli, files: Path, compared: dict[str, Any]
) -> None:
    place = {"session_id": "en-1", "turn_index": THINGS.index("kettle")}
    asked = {"query_id": "q", "query": "and then?", "scope": "en", "evidence": [place]}
    talk = files / "talk.jsonl"
    talk.write_text(json.dumps(asked | {"query_context": f"Ada: The kettle! A kettle?\nAda: {asked['query']}"}))
    reused = ("--reuse", str(files / "kept"), "--compare", "alone:query_context_weight=0")
    done = cli.run("eval", str(files / "turns.jsonl"), str(talk), *reused, "--json")
    assert done.code == 0, done.out + done.err
    read, alone = done.json["settings"]
    assert (read["in_context"], alone["in_context"]) == (1, 0)
    found = {one["name"]: one["groups"][0]["metrics"]["MRR"] for one in (read, alone)}
    assert found["base"] == 1 > found["alone"]
    shown = cli.run("eval", str(files / "turns.jsonl"), str(talk), *reused)
    assert "base: 1 of 1 questions were read with the lines before them" in shown.out
    assert "alone: 0 of 1 questions" in shown.out
