"""Late interaction: a question's token vectors against each passage's and its neighbours'. Pure, but for the model.

    own(q, d)    = sum_i w_i max_j cos(q_i, d_j)         over the query's tokens i and the passage's tokens j
    around(q, d) = the same, where a token may also match the turn before (x .85) or after (x .75)
    score        = (own + around) / 2

own is the MaxSim of ColBERT (Khattab & Zaharia 2020, arXiv:2004.12832) as a mean with a weight for each query token,
which sum to 1. The weight is the BM25 idf, log(1 + (N - n + .5) / (n + .5)), of the token among the N passages of this
call, n of which hold it; so a word that every candidate holds decides nothing. Special tokens are left out and
punctuation weighs nothing. Neighbours: an answer is found by its question.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from query.reranking.pacing import PASS_TOKENS, Pace, best_reached, run_in_time
from query.reranking.port import Passage, Reranked
from query.reranking.token_cache import Tokens, VectorCache, cache_key
from query.reranking.token_encoder import TokenEncoder
from workers.embedding.passes import alike

BATCH = 16
"""Texts a pass: from 4 to 32 long texts a token costs the same, within 10%."""
NO_TOKENS = 0.0
"""Similarity to a text without a single token, and score for a query without one: similar to nothing."""
BEFORE, AFTER = 0.85, 0.75
"""What a match in the turn before or after counts, against one in the passage itself."""
WARM_UP = "what a pass costs is known before the first deadline; "
WARM_UPS = (1, 10)
"""Times that text: the first pass pays for lazy initialisation, the second, as long as a turn, says how fast it is."""


class LateInteraction:
    """Scores are weighted mean cosines in [-1, 1]; higher is better."""

    def __init__(self, encoder: TokenEncoder, *, name: str, cache_bytes: int) -> None:
        """Take a loaded encoder and warm it up. `cache_bytes`: most bytes of token vectors kept."""
        self.name = name
        self.scripts = encoder.scripts
        self._encoder = encoder
        self._cache = VectorCache(cache_bytes)
        self._pace = Pace()
        self._lock = threading.Lock()
        for times in WARM_UPS:
            self._pace.restart()
            self._look_up([WARM_UP * times], None, query=False)

    def rerank(self, query: str, passages: Sequence[Passage], *, deadline: float | None = None) -> Reranked:
        """Score `passages`; what is cached costs next to nothing. Raises `ModelError` when a pass fails."""
        if not passages or (deadline is not None and time.monotonic() >= deadline):
            return Reranked([None] * len(passages))
        asked = self._look_up([query], deadline, query=True)[0]
        pool = self._look_up([passage.text for passage in passages], deadline, query=False)
        if asked.vectors is None:
            return Reranked([None] * len(passages))
        weights = self._weights(asked.ids, [tokens.ids for tokens in pool])
        heavy = weights > 0
        wanted = asked.vectors[heavy].astype(np.float32)
        best = best_reached([None if one.vectors is None else similarities(wanted, one.vectors) for one in pool])
        reached = [row for row in best if row is not None]
        scores = with_neighbours(reached, weights[heavy], passages) if reached else []
        return Reranked([*scores, *[None] * (len(passages) - len(scores))])

    def _weights(self, query: NDArray[np.int32], pool: Sequence[NDArray[np.int32]]) -> NDArray[np.float32]:
        """Weight of each query token, summing to 1; equal ones when the query is all punctuation."""
        silent = [not self._encoder.is_word(token) for token in query.tolist()]
        weights = np.where(silent, 0.0, idf(query, pool))
        if not weights.any():
            weights = np.ones(len(query))
        return np.asarray(weights / max(weights.sum(), 1.0e-9), dtype=np.float32)

    def _look_up(self, texts: Sequence[str], deadline: float | None, *, query: bool) -> list[Tokens]:
        """Tokens of each text in order, with vectors where they were cached or could be made in time."""
        keys = [cache_key(text, query=query) for text in texts]
        found = {key: entry for key in keys if (entry := self._cache.get(key)) is not None}
        missing = {key: text for key, text in zip(keys, texts, strict=True) if key not in found}
        if missing:
            found |= self._encode(missing, deadline, query=query)
        return [found[key] for key in keys]

    def _encode(self, missing: dict[bytes, str], deadline: float | None, *, query: bool) -> dict[bytes, Tokens]:
        keys = list(missing)
        rows = self._encoder.prepare(list(missing.values()), query=query)
        made = {key: Tokens(row.ids[row.own], None) for key, row in zip(keys, rows, strict=True)}

        def run(indices: list[int]) -> None:
            vectors = self._encoder.forward([rows[index].ids for index in indices])
            for index, all_vectors in zip(indices, vectors, strict=True):
                row = rows[index]
                tokens = Tokens(row.ids[row.own], all_vectors[row.own])
                made[keys[index]] = tokens
                self._cache.put(keys[index], tokens)

        lengths = [len(row.ids) for row in rows]
        run_in_time(
            lengths, run, batch=BATCH, pace=self._pace, lock=self._lock, deadline=deadline, charge=in_alike_passes
        )
        return made


def in_alike_passes(lengths: Sequence[int]) -> int:
    """The charge of texts that are read in passes of like length."""
    return sum(padded * len(places) + PASS_TOKENS for padded, places in alike(lengths).items())


def idf(query: NDArray[np.int32], pool: Sequence[NDArray[np.int32]]) -> NDArray[np.float64]:
    """log(1 + (N - n + .5) / (n + .5)) for each query token, n of the N candidates in `pool` holding it."""
    holding = Counter(token for ids in pool for token in set(ids.tolist()))
    held = np.array([holding[token] for token in query.tolist()], dtype=np.float64)
    return np.log1p((len(pool) - held + 0.5) / (held + 0.5))


def similarities(query: NDArray[np.float32], text: NDArray[np.float16]) -> NDArray[np.float32]:
    """Each query token's best cosine among the text's tokens, shape (query tokens,)."""
    if not len(text) or not len(query):
        return np.full(len(query), NO_TOKENS, np.float32)
    best: NDArray[np.float32] = (text.astype(np.float32) @ query.T).max(axis=0)
    return best


def with_neighbours(
    own: Sequence[NDArray[np.float32]], weights: NDArray[np.float32], passages: Sequence[Passage]
) -> list[float]:
    """The score of each passage from its own similarities, `own`, and those of the neighbours among them.

    `own` has a row for each of the first passages; a neighbour further down was not reached and does not count.
    """
    table = np.stack(own)
    around = table.copy()
    for place, passage in enumerate(passages[: len(own)]):
        for neighbour, share in ((passage.before, BEFORE), (passage.after, AFTER)):
            if neighbour is not None and neighbour < len(own):
                np.maximum(around[place], share * table[neighbour], out=around[place])
    # Not by a product of matrices: BLAS warned of an invalid value once where there was none.
    scores: list[float] = ((table + around) / 2 * weights).sum(axis=1).astype(float).tolist()
    return scores
