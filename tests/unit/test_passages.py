"""Which neighbours a reranker may read: those a short turn of a conversation leans on, when they are candidates."""

from __future__ import annotations

from query.conversation import LEAN_CHARS
from query.passages import passages_of
from query.reranking.port import Passage
from workers.stores.catalog import StoredChunk
from workers.stores.scope import ScopedTurn


def chunk(index: int, text: str = "", *, session: str = "s", role: str = "user", chars: int = 10) -> StoredChunk:
    turn = ScopedTurn("t", session, None, role, "push", (), created_at_us=None, turn_index=index)
    return StoredChunk(
        vector_id=f"{session}{index}{role}",
        turn_key=f"{session}{index}{role}",
        turn=turn,
        turn_index=index,
        turn_chars=chars,
        speaker=None,
        chunk_index=0,
        total_chunks=1,
        start=0,
        end=len(text),
        kind="text",
        language=None,
        text=text,
    )


def test_turns_beside_each_other_are_each_others_neighbours_by_position() -> None:
    found = passages_of([chunk(2, "answer", role="assistant"), chunk(7, "else"), chunk(1, "question")])
    assert found == [Passage("answer", before=2), Passage("else"), Passage("question", after=0)]


def test_a_neighbour_is_of_the_same_session_and_part_of_the_talk() -> None:
    found = passages_of([chunk(2), chunk(1, session="other"), chunk(3, role="tool"), chunk(1, role="system")])
    assert all((one.before, one.after) == (None, None) for one in found)


def test_a_long_turn_leans_on_nothing_but_may_be_leant_on() -> None:
    found = passages_of([chunk(2, chars=LEAN_CHARS + 1), chunk(3)])
    assert [(one.before, one.after) for one in found] == [(None, None), (0, None)]


def test_of_two_turns_at_one_place_the_better_candidate_is_the_neighbour() -> None:
    found = passages_of([chunk(2), chunk(1, role="assistant"), chunk(1)])
    assert found[0].before == 1
