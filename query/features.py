"""From a pool of candidates to the features that turns are ranked by: chunks folded into turns, neighbours found. Pure,
but for the words that are remembered."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from query.bm25 import Document, bm25
from query.candidates import Pool
from query.conversation import CONVERSATION, FOLLOWING, LEAN_CHARS, PREVIOUS, SHARES, USER, around, leans
from query.folding import plain
from query.ranking import Features
from query.words import WordCounts, Words
from workers.stores.catalog import StoredChunk
from workers.stores.placed_turns import Place
from workers.stores.scope import Span, within
from workers.stores.terms import question_terms


def features_of(question: str, pool: Pool, words: WordCounts, days: Collection[Span] = ()) -> Features:
    """The features of every turn in the pool; `days` are those that the question names."""
    chunks = [pool.chunks[key] for key in sorted(pool.chunks)]
    by_turn: dict[str, list[int]] = {}
    for at, chunk in enumerate(chunks):
        by_turn.setdefault(chunk.turn_key, []).append(at)
    turns = sorted(by_turn)
    cosine = _cosine(chunks, pool)
    lexical = bm25(*question_terms(question), _documents(chunks, pool, words))
    # Which part of a long turn is shown: the one that both legs like best.
    liked = _over_range(lexical) + (0.0 if cosine is None else _over_range(cosine))
    position = _positions(turns, by_turn, chunks)
    first = [chunks[by_turn[turn][0]] for turn in turns]
    parts = [[chunks[at] for at in by_turn[turn]] for turn in turns]
    asked = plain(question)
    return Features(
        turns=turns,
        best=[chunks[max(by_turn[turn], key=lambda at: (liked[at], -at))].vector_id for turn in turns],
        cosine=None if cosine is None else np.array([cosine[by_turn[turn]].max() for turn in turns]),
        bm25=np.array([lexical[by_turn[turn]].max() for turn in turns]),
        chars=np.array([one.turn_chars for one in first], np.int64),
        previous=_leaned_on(first, position, PREVIOUS),
        following=_leaned_on(first, position, FOLLOWING),
        same=np.array([_is(one, question, asked) for one in parts], np.bool_),
        on_day=np.array([within(one.turn.created_at_us, days) for one in first], np.bool_),
        user=np.array([one.turn.role == USER for one in first], np.bool_),
        index=np.array([one.turn_index for one in first], np.int64),
    )


def _is(turn: Sequence[StoredChunk], question: str, asked: str) -> bool:
    """Whether the turn is the question, but for case, width and white space; of a turn in several chunks, as far as
    those among the candidates say."""
    first = turn[0]
    if first.total_chunks == 1:
        return plain(first.text) == asked
    return first.turn_chars == len(question) and all(
        plain(one.text) == plain(question[one.start : one.end]) for one in turn
    )


def _cosine(chunks: Sequence[StoredChunk], pool: Pool) -> np.ndarray | None:
    if not pool.dense:
        return None
    lowest = min(pool.dense.values())  # of a chunk whose vector is lost nothing is known
    return np.array([pool.dense.get(one.vector_id, lowest) for one in chunks])


def _documents(chunks: Sequence[StoredChunk], pool: Pool, words: WordCounts) -> list[Document]:
    documents = []
    for chunk in chunks:
        leaned_on: list[tuple[float, Words]] = []
        for far, place in around(chunk).items() if leans(chunk) else ():
            turn = pool.around.get(place)
            if turn is not None:
                # Of a long one only as much as a short one would bring.
                share = SHARES[far] * min(1.0, LEAN_CHARS / max(1, turn.chars))
                leaned_on.append((share, words.of(turn.text)))
        documents.append(Document(words.of(chunk.text), leaned_on))
    return documents


def _positions(
    turns: Sequence[str], by_turn: Mapping[str, list[int]], chunks: Sequence[StoredChunk]
) -> dict[Place, int]:
    """Where the candidate of each place of a conversation is among the turns."""
    found: dict[Place, int] = {}
    for position, turn in enumerate(turns):
        chunk = chunks[by_turn[turn][0]]
        if chunk.turn.role in CONVERSATION:
            found.setdefault((chunk.turn.session_id, chunk.turn_index), position)
    return found


def _leaned_on(first: Sequence[StoredChunk], position: Mapping[Place, int], far: int) -> np.ndarray:
    places = [around(one).get(far) if leans(one) else None for one in first]
    return np.array([-1 if place is None else position.get(place, -1) for place in places], np.int64)


def _over_range(scores: np.ndarray) -> np.ndarray:
    span = float(np.ptp(scores)) if len(scores) else 0.0
    return (scores - scores.min()) / span if span else np.zeros(len(scores))
