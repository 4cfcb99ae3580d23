"""The demo's turns and questions: what a stranger sees first must be well-formed, bilingual and answerable."""

from __future__ import annotations

import json
from collections import Counter
from importlib.resources import files
from typing import Any

import pytest

from producers.events import TurnEvent, parse_event
from producers.scripts import script_weights
from producers.settings import load_settings

DATA = files("query") / "demo_data"
TURNS: list[TurnEvent] = [
    parse_event(line, load_settings()) for line in (DATA / "turns.jsonl").read_text(encoding="utf-8").splitlines()
]
QUESTIONS: list[dict[str, Any]] = [
    json.loads(line) for line in (DATA / "questions.jsonl").read_text(encoding="utf-8").splitlines()
]


def is_chinese(text: str) -> bool:
    return "han" in script_weights(text)


def answers(question: dict[str, Any]) -> list[TurnEvent]:
    places = {(question["tenant"], place["session_id"], place["turn_index"]) for place in question["evidence"]}
    return [turn for turn in TURNS if (turn.tenant, turn.session_id, turn.turn_index) in places]


def test_there_are_enough_turns_in_enough_sessions_of_two_tenants() -> None:
    assert len(TURNS) >= 120
    assert len({(turn.tenant, turn.session_id) for turn in TURNS}) >= 8
    assert {turn.tenant for turn in TURNS} == {"aurora", "harbor"}


def test_every_turn_is_one_of_its_own() -> None:
    assert [identity for identity, count in Counter(turn.identity for turn in TURNS).items() if count > 1] == []


def test_a_session_is_numbered_from_zero_and_goes_forward_in_time() -> None:
    sessions: dict[str, list[TurnEvent]] = {}
    for turn in TURNS:
        sessions.setdefault(turn.session_id, []).append(turn)
    for session, turns in sessions.items():
        times = [turn.created_at for turn in turns if turn.created_at is not None]
        assert [turn.turn_index for turn in turns] == list(range(len(turns))), session
        assert times == sorted(times), session
        assert len(times) == len(turns), session


def test_both_languages_carry_weight() -> None:
    assert 0.4 <= sum(is_chinese(turn.content) for turn in TURNS) / len(TURNS) <= 0.6
    assert 6 <= len(QUESTIONS) <= 8
    for tenant in ("aurora", "harbor"):
        asked = [is_chinese(question["query"]) for question in QUESTIONS if question["tenant"] == tenant]
        assert set(asked) == {True, False}, tenant


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: str(question["query_id"]))
def test_a_question_is_answered_by_one_turn_in_its_language_and_in_other_words(question: dict[str, Any]) -> None:
    assert set(question) == {"query_id", "query", "tenant", "evidence"}
    (answer,) = answers(question)
    assert is_chinese(answer.content) == is_chinese(question["query"])
    assert question["query"].rstrip("?？") not in answer.content
