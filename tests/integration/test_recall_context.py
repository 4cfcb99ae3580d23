"""What recall does with its hits: folds what says the same, leaves out what is recent, shows what is around them."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi.testclient import TestClient

from memory import Memory, contents, turn
from producers.errors import StoreUnavailable, UsageError
from producers.events import TurnEvent
from producers.settings import Settings, load_settings
from query.api.app import create_app
from query.question import Question
from query.recent import Recent
from system import Cli
from workers.order import entry_order
from workers.stores.scope import Scope, ScopedTurn, in_scope
from workers.stores.selection import Selection

pytestmark = pytest.mark.integration

FENCE = "\n\n```python\nheron()\n```"


@pytest.fixture
def memory(settings: Settings) -> Memory:
    return Memory(settings)


def conversation(session: str, *said: str, tenant: str = "t") -> Iterator[TurnEvent]:
    for index, content in enumerate(said):
        role = ("user", "assistant")[index % 2]
        yield turn(content, index, session_id=session, role=role, tenant=tenant)


def test_five_hits_are_five_things_and_name_what_they_stand_for(memory: Memory) -> None:
    memory.store(*[turn("The heron waits.", 0, session_id=f"s{n}") for n in range(4)])
    memory.store(turn("the heron  WAITS.", 1, session_id="s9"), turn("A heron flew.", 2))
    answer = memory.ask("the heron waits", k=5)
    assert [" ".join(hit.content.casefold().split()) for hit in answer.hits] == ["the heron waits.", "a heron flew."]
    best = answer.hits[0]
    assert sorted([f"{best.session_id}:{best.turn_index}", *best.also]) == ["s0:0", "s1:0", "s2:0", "s3:0", "s9:1"]
    assert answer.as_json()["hits"][1]["also"] == ()
    folded = best.also[0].partition(":")
    (account,) = memory.ask("the heron waits", why=(folded[0], int(folded[2]))).why
    assert (account.verdict, account.reason) == (
        "folded",
        "it says the same as hit 1, which stands for it; fold = false returns both",
    )
    apart = memory.ask("the heron waits", k=5, fold=False)
    assert len(apart.hits) == 5
    assert not any(hit.also for hit in apart.hits)


def test_what_is_recent_in_a_session_is_left_out_and_the_rest_is_not(memory: Memory) -> None:
    memory.store(*conversation("live", *(f"heron number {n}" for n in range(10))))
    memory.store(*conversation("old", "heron number 77"), *conversation("live", "heron 0", "heron 1", tenant="other"))
    answer = memory.ask("heron number", k=20, exclude_recent=(Recent("live", 4),))
    assert sorted(contents(answer)) == sorted([*(f"heron number {n}" for n in range(6)), "heron number 77"])
    assert contents(memory.ask("heron", k=20, exclude_recent=(Recent("live", 10),))) == ["heron number 77"]
    assert contents(memory.ask("heron", k=20, exclude_recent=(Recent("live", 99),))) == ["heron number 77"]
    assert len(memory.ask("heron", k=20, exclude_recent=(Recent("none", 3),)).hits) == 11
    (account,) = memory.ask("heron", why=("live", 6), exclude_recent=(Recent("live", 4),)).why
    assert (account.verdict, account.reason) == ("filtered", "left out by exclude_recent")
    around = memory.ask("heron number 5", k=1, neighbours=3, exclude_recent=(Recent("live", 4),)).around
    assert {one.turn_index for one in around} <= set(range(6))


def test_recent_turns_are_counted_by_their_index_and_not_by_when_they_came(memory: Memory) -> None:
    memory.store(*[turn(f"heron {index}", index) for index in (30, 7, 0, 12)])
    assert sorted(contents(memory.ask("heron", exclude_recent=(Recent("s", 2),)))) == ["heron 0", "heron 7"]


@pytest.fixture
def talk(memory: Memory) -> Memory:
    memory.store(
        *conversation("a", "Hello.", "Hi.", "Where does the heron wait?", "By the weir.", "Thanks.", "Welcome."),
        *conversation("b", "Lunch?", "At noon."),
        *conversation("a", "Whose heron?", "Ours.", "A secret heron?", "Not yours.", tenant="other"),
    )
    return memory


def test_the_turns_around_a_hit_are_in_the_block_and_in_the_answer(talk: Memory) -> None:
    answer = talk.ask("where does the heron wait", k=1, neighbours=1)
    assert contents(answer) == ["Where does the heron wait?"]
    assert [(one.turn_index, one.role, one.content) for one in answer.around] == [
        (1, "assistant", "Hi."),
        (3, "assistant", "By the weir."),
    ]
    places = [line.partition(" ")[0] for line in answer.context.splitlines() if line.startswith("[")]
    assert places == ["[+]", "[1]", "[+]"]
    beside = "[+] assistant, time unknown, session a:3\nBy the weir."
    assert f"session a:2\nWhere does the heron wait?\n{beside}" in answer.context
    said = answer.as_json()["around"][1]
    assert said == {"session_id": "a", "turn_index": 3, "role": "assistant", "speaker": None, "created_at": None} | {
        "content": "By the weir.",
        "chars": 12,
    }
    alone = talk.ask("where does the heron wait", k=1)
    assert (alone.around, alone.hits) == ([], answer.hits)


def test_neighbours_are_those_of_the_scope(talk: Memory) -> None:
    scope = Scope("t", roles=("user",))
    assert [one.turn_index for one in talk.ask("heron wait", scope, k=1, neighbours=2).around] == [0, 4]
    talk.store(turn("Where is the key?", 0, session_id="c"), turn("Under the mat.", 1, session_id="c", agent_id="x"))
    assert len(talk.ask("where is the key", k=1, neighbours=2).around) == 1
    talk.catalog.tombstones.bury(Selection("t", agent="x"), lambda: entry_order("99-0"), lambda *_: None)
    assert talk.ask("where is the key", k=1, neighbours=2).around == []


def test_metadata_and_code_filter_hits_and_neighbours_and_why_says_so(memory: Memory) -> None:
    branches = ["main", "next", "main", "main"]
    said = ["Where does the heron wait?", "By the weir.", f"Like this:{FENCE}", "The heron waits by the weir."]
    memory.store(*(turn(said[n], n, metadata={"git": {"branch": branches[n]}}) for n in range(4)))
    on_main = Scope("t", where=(("git.branch", "main"),))
    answer = memory.ask("heron weir", on_main, k=1, neighbours=3, why=("s", 1))
    found = {answer.hits[0].turn_index} | {one.turn_index for one in answer.around}
    assert found == {0, 2, 3}
    assert answer.hits[0].metadata == {"git": {"branch": "main"}}
    assert (answer.why[0].verdict, answer.why[0].reason) == ("filtered", "left out by where")
    code = Scope("t", code_languages=("Python",))
    answer = memory.ask("heron weir", code, neighbours=3, why=("s", 3))
    assert [(hit.turn_index, hit.content, hit.language) for hit in answer.hits] == [(2, FENCE.strip(), "python")]
    assert (answer.around, answer.degraded) == ([], [])
    assert (answer.why[0].verdict, answer.why[0].reason) == ("filtered", "left out by code_languages")
    assert memory.ask("heron weir", code, why=("s", 2)).why[0].verdict == "returned"
    cli = Cli(memory.settings.data_dir)
    for wrong in ("branch", "=main"):
        refused = cli.run("recall", "heron", "--tenant", "t", "--where", wrong)
        assert (refused.code, refused.err.startswith("error: where")) == (2, True)
        assert "KEY=VALUE is due, such as git.branch=main" in refused.err


def test_a_forgotten_or_excluded_neighbour_or_one_of_another_tenant_never_appears(tmp_path: Path) -> None:
    rng = random.Random(7)
    memory = Memory(load_settings(data_dir=tmp_path / "data", embedder="hashing", reranker="none"))
    events = [
        turn(
            f"heron {n}{rng.choice(['', FENCE])}",
            n % 40,
            tenant=rng.choice("ab"),
            session_id=rng.choice("st"),
            role=rng.choice(["user", "tool"]),
            metadata={"n": n % 3},
        )
        for n in range(300)
    ]
    unique = list({event.identity: event for event in events}.values())
    memory.store(*unique)
    for _ in range(25):
        scope = Scope(
            rng.choice("ab"),
            roles=rng.choice([(), ("user",)]),
            exclude_sessions=rng.choice([(), ("s",)]),
            before_turns=rng.choice([(), (("t", rng.randrange(40)),)]),
            where=rng.choice([(), (("n", "1"), ("n", "2"))]),
            code_languages=rng.choice([(), ("python",)]),
        )
        reach = rng.randint(1, 3)
        answer = memory.ask(f"heron {rng.randrange(300)}", scope, k=3, neighbours=reach)
        visible = {
            (one.session_id, one.turn_index, one.role): one.content for one in unique if in_scope(scoped(one), scope)
        }
        hits = {(hit.session_id, hit.turn_index, hit.role) for hit in answer.hits}
        expected = {
            place
            for place in visible
            if any(place[0] == hit[0] and abs(place[1] - hit[1]) <= reach for hit in hits) and place not in hits
        }
        assert {(one.session_id, one.turn_index, one.role) for one in answer.around} == expected
        assert {one.content for one in answer.around} == {visible[place] for place in expected}


def scoped(event: TurnEvent) -> ScopedTurn:
    return ScopedTurn(
        *(event.tenant, event.session_id, event.agent_id, event.role, event.source, event.tags, None, event.turn_index),
        metadata=json.dumps(event.metadata),
        code_languages=("python",) if FENCE in event.content else (),
    )


def test_hits_stand_alone_when_their_neighbours_cannot_be_read(talk: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise StoreUnavailable("disk gone")

    monkeypatch.setattr("query.recall.neighbours_of", fail)
    answer = talk.ask("where does the heron wait", k=1, neighbours=1)
    assert contents(answer) == ["Where does the heron wait?"]
    assert answer.degraded == ["neighbours: disk gone; the hits are shown without them"]
    assert "[1]" in answer.context


def test_the_command_takes_all_of_it_for_one_question_and_for_a_file(talk: Memory, tmp_path: Path) -> None:
    cli = Cli(talk.settings.data_dir)
    asked = ("recall", "where does the heron wait", "--tenant", "t", "-k", "1", "--neighbours", "1")
    said = cli.run(*asked, "--no-fold", "--exclude-recent", "a:3", "--exclude-recent", "b:2", "--json").json
    assert [hit["turn_index"] for hit in said["hits"]] == [2]
    assert [one["turn_index"] for one in said["around"]] == [1]
    line = {"query_id": "q", "query": "where does the heron wait", "tenant": "t", "exclude_recent": ["a:3", "b:2"]}
    questions = tmp_path / "questions.jsonl"
    questions.write_text(json.dumps(line))
    answer = cli.run("recall", "--queries", str(questions), "--neighbours", "1", "-k", "1").json
    assert answer == {"query_id": "q"} | {name: said[name] for name in ("hits", "degraded", "around", "context")}
    refused = cli.run("recall", "heron", "--tenant", "t", "--exclude-recent", "a")
    assert (refused.code, refused.err) == (2, "error: exclude_recent 'a': SESSION:N is due, such as deploy-7:20\n")


def test_the_service_takes_all_of_it_by_fields(talk: Memory) -> None:
    with TestClient(create_app(talk.settings), "http://127.0.0.1") as client:

        def ask(**fields: Any) -> httpx.Response:
            return client.post("/v1/recall", json={"query": "where does the heron wait", "tenant": "t", **fields})

        found = ask(
            exclude_recent=[{"session_id": "a", "turns": 3}, {"session_id": "b", "turns": 2}],
            neighbours=1,
            fold=False,
            k=1,
        ).json()
        assert [hit["turn_index"] for hit in found["hits"]] == [2]
        assert [one["turn_index"] for one in found["around"]] == [1]
        assert ask(where={"title": ["heron", 3]}, code_languages=["go"]).json()["hits"] == []
        assert (ask(where=["title=heron"]).status_code, ask(where={"": 1}).status_code) == (422, 422)
        assert (ask(neighbours=11).status_code, ask(fold=1).status_code) == (422, 422)
        refused = ask(exclude_recent=[{"session_id": "ops", "turns": 0}])
        assert refused.status_code == 422
        assert "exclude_recent" in refused.text


def test_more_neighbours_than_make_sense_are_refused() -> None:
    with pytest.raises(UsageError, match="neighbours = 11: must be from 0 to 10"):
        Question("heron", Scope("t"), neighbours=11)


def test_the_block_follows_its_settings(talk: Memory) -> None:
    template = "<<<\n$citation $date\n$content\n>>>"
    settings = talk.settings.model_copy(update={"context_template": template, "context_tokens": 100})
    answer = talk.ask("where does the heron wait", settings=settings, k=5)
    assert answer.context.startswith("<<<\n[1] date unknown\nWhere does the heron wait?\n\n[2] ")
    assert answer.context.endswith("\n>>>")
