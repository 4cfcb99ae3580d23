"""What a reranker reads: the candidates in first-stage order, each with those of its neighbours among them. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from query.conversation import CONVERSATION, FOLLOWING, PREVIOUS, around, leans
from query.reranking.port import Passage
from workers.stores.catalog import StoredChunk
from workers.stores.placed_turns import Place


def passages_of(chunks: Sequence[StoredChunk]) -> list[Passage]:
    """A passage for each chunk, of which there is one a turn."""
    position: dict[Place, int] = {}
    for at, chunk in enumerate(chunks):
        if chunk.turn.role in CONVERSATION:
            position.setdefault((chunk.turn.session_id, chunk.turn_index), at)
    passages = []
    for chunk in chunks:
        places = around(chunk) if leans(chunk) else {}
        beside = {far: position.get(place) for far, place in places.items()}
        passages.append(Passage(chunk.text, before=beside.get(PREVIOUS), after=beside.get(FOLLOWING)))
    return passages
