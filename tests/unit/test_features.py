"""From a pool to features: chunks folded into turns, and what a turn leans on."""

from __future__ import annotations

from dataclasses import replace

import pytest

from query.candidates import Pool
from query.features import features_of
from query.words import WordCounts
from workers.stores.catalog import StoredChunk
from workers.stores.placed_turns import PlacedTurn
from workers.stores.scope import ScopedTurn

TURN = ScopedTurn("t", "s", None, "user", "push", (), None, 0)


def chunk(turn: int, text: str, part: int = 0, role: str = "user", chars: int | None = None) -> StoredChunk:
    return StoredChunk(
        vector_id=f"{turn}#{part}",
        turn_key=f"turn{turn}",
        turn=replace(TURN, role=role),
        turn_index=turn,
        speaker=None,
        turn_chars=len(text) if chars is None else chars,
        text=text,
        chunk_index=part,
        total_chunks=1,
        start=0,
        end=len(text),
        kind="text",
        language=None,
    )


def pool_of(*chunks: StoredChunk, dense: dict[str, float] | None = None) -> Pool:
    around = {
        (one.turn.session_id, one.turn_index): PlacedTurn(
            one.turn_key, one.turn, one.turn_index, None, one.text, one.turn_chars
        )
        for one in chunks
    }
    return Pool({one.vector_id: one for one in chunks}, dense, around)


def test_a_turn_has_the_best_score_of_its_chunks_and_shows_the_one_that_both_legs_like() -> None:
    chunks = [chunk(1, "heron"), chunk(2, "weir", 0, chars=900), chunk(2, "heron heron", 1, chars=900)]
    found = features_of("heron", pool_of(*chunks, dense={"1#0": 0.2, "2#0": 0.5, "2#1": 0.4}), WordCounts())
    assert list(found.turns) == ["turn1", "turn2"]
    assert list(found.best) == ["1#0", "2#1"]
    assert found.cosine is not None
    assert found.cosine.tolist() == [0.2, 0.5]
    assert found.bm25[1] > found.bm25[0] > 0
    assert found.chars.tolist() == [5, 900]


@pytest.mark.parametrize(
    ("answer", "leans"),
    [
        (chunk(2, "8443"), True),
        (chunk(3, "8443"), False),
        (chunk(2, "8443", role="tool"), False),
        (chunk(2, "8443", chars=601), False),
        (replace(chunk(2, "8443"), turn=replace(TURN, session_id="other")), False),
    ],
    ids=["the reply", "one turn later", "a tool's output", "a long turn", "another session"],
)
def test_a_short_turn_of_a_conversation_leans_on_the_one_before(answer: StoredChunk, leans: bool) -> None:
    found = features_of("port", pool_of(chunk(1, "which port"), answer), WordCounts())
    at = list(found.turns).index(answer.turn_key)
    assert found.previous[at] == (0 if leans else -1)
    assert (found.bm25[at] > 0) == (leans or (answer.turn_index == 3 and answer.turn.session_id == "s"))
    assert found.cosine is None


def test_a_long_turn_lends_no_more_words_than_a_short_one() -> None:
    def lent(chars: int) -> float:
        question = chunk(1, "which port", chars=chars)
        return float(features_of("port", pool_of(question, chunk(2, "8443")), WordCounts()).bm25[1])

    assert lent(60) == lent(600) > lent(1200) > lent(100_000)


def test_a_candidate_without_a_vector_gets_the_lowest_cosine_of_the_others() -> None:
    found = features_of("a", pool_of(chunk(1, "a"), chunk(2, "b"), dense={"1#0": 0.3}), WordCounts())
    assert found.cosine is not None
    assert found.cosine.tolist() == [0.3, 0.3]


def test_an_empty_pool_has_no_features() -> None:
    assert list(features_of("a", Pool(dense={}), WordCounts()).turns) == []


def test_a_turn_is_the_question_whatever_its_case_width_and_white_space_but_not_a_part_of_it() -> None:
    found = features_of(
        "Ｗhich  Port?", pool_of(chunk(1, "which port?\n"), chunk(2, "which port? the old one")), WordCounts()
    )
    assert found.same.tolist() == [True, False]
