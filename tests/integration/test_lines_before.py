"""Recall in the middle of a talk: the lines before a question help to find what it means."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient

from memory import Memory, contents, turn
from producers.errors import EmbedderUnavailable
from producers.settings import Settings
from query.api.app import create_app
from query.candidates import CandidateSearch, Pool
from query.question import MAX_QUESTION_CHARS, Question
from system import Cli
from workers.embedding.hashing import HashingEmbedder
from workers.stores.scope import Scope

pytestmark = pytest.mark.integration

ASKED = "and then?"
TALK = "Ada: Is there a ferry to the island?\nBob: Yes, take the island ferry.\nAda: " + ASKED
FERRY = "Off the ferry, take the island bus."
OTHERS = [
    "My opera ticket is for a Thursday, row seven, right by an aisle.",
    "Our printer needs a cartridge that only one shop in town sells.",
    "A key under that flower pot opens our garden shed, not our cellar.",
    "Dr. Wu is a dentist whose patients never wait longer than an hour.",
]


@pytest.fixture
def memory(settings: Settings) -> Memory:
    memory = Memory(settings)
    memory.store(*(turn(text, session_id=f"s{number}") for number, text in enumerate([*OTHERS, FERRY])))
    return memory


def test_the_turn_that_the_talk_is_about_comes_first_and_only_with_the_talk(memory: Memory) -> None:
    assert FERRY not in contents(memory.ask(ASKED, k=2))
    assert contents(memory.ask(ASKED, k=2, query_context=TALK))[0] == FERRY
    without = memory.ask(ASKED, k=5)
    for nothing in ({"query_context": ASKED}, {"query_context": TALK, "query_context_weight": 0.0}):
        same = memory.ask(ASKED, k=5, **nothing)
        assert [(hit.content, hit.score) for hit in same.hits] == [(hit.content, hit.score) for hit in without.hits]


def test_a_question_about_something_else_is_answered_as_without_the_talk(memory: Memory) -> None:
    for text in OTHERS:
        assert contents(memory.ask(text, k=1, query_context=TALK)) == [text]


def test_the_command_the_file_and_the_service_take_the_same_lines(memory: Memory, tmp_path: Path) -> None:
    cli = Cli(memory.settings.data_dir)
    said = cli.run("recall", ASKED, "--tenant", "t", "-k", "2", "--query-context", TALK, "--json").json
    assert said["hits"][0]["content"] == FERRY
    questions = tmp_path / "questions.jsonl"
    questions.write_text(json.dumps({"query_id": "q", "query": ASKED, "tenant": "t", "query_context": TALK}))
    assert cli.run("recall", "--queries", str(questions), "-k", "2").json["hits"] == said["hits"]
    with TestClient(create_app(memory.settings), "http://127.0.0.1") as client:
        body: dict[str, Any] = {"query": ASKED, "tenant": "t", "k": 2, "query_context": TALK}
        assert client.post("/v1/recall", json=body).json()["hits"] == said["hits"]
        refused = client.post("/v1/recall", json=body | {"query_context": "harbour" * MAX_QUESTION_CHARS})
        assert (refused.status_code, "query_context" in refused.text) == (422, True)
        assert "harbour" not in refused.text
    aside = cli.run("recall", "--queries", str(questions), "--query-context", TALK)
    assert (aside.code, "query_context cannot be given here" in aside.err) == (2, True)


class LatinOnly(HashingEmbedder):
    scripts = frozenset({"latin"})


class OnceOnly(HashingEmbedder):
    """Away after its first answer."""

    answered = False

    def embed_query(self, text: str) -> np.ndarray:
        if self.answered:
            raise EmbedderUnavailable("the embedder is away")
        self.answered = True
        return super().embed_query(text)


@pytest.mark.parametrize(
    ("embedder", "context", "said"),
    [
        (LatinOnly(), "我中午要到港口。岛上有两班渡轮。", "hashing-v1 does not speak its Chinese characters"),
        (OnceOnly(), TALK, "the embedder is away"),
    ],
    ids=["foreign", "away"],
)
def test_lines_that_the_embedder_cannot_read_leave_the_question_by_itself(
    memory: Memory, embedder: HashingEmbedder, context: str, said: str
) -> None:
    def gather(one: HashingEmbedder, context: str) -> Pool:
        question = Question(ASKED, Scope("t"), query_context=context)
        search = CandidateSearch(memory.catalog, memory.vectors, memory.space, lambda: one)
        return search.gather(question.text, question.seen, question.wide, question.in_context)

    pool = gather(embedder, context)
    assert pool.degraded == [f"query_context: {said}; the question was searched for by itself"]
    assert pool.dense == gather(HashingEmbedder(), "").dense
