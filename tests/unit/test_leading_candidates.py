"""How many candidates a leg brings: so many turns, each with all its chunks so far."""

from __future__ import annotations

from query.candidates import leading
from workers.stores.lance_search import Candidate


def test_a_leg_is_cut_by_turns_and_not_by_chunks() -> None:
    found = [Candidate(f"c{at}", turn, 1.0 - at / 10) for at, turn in enumerate("aabacbd")]
    assert [one.vector_id for one in leading(found, 2)] == ["c0", "c1", "c2", "c3"]
    assert leading(found, 4) == found
    assert leading(found, 0) == []
    assert leading([], 3) == []
