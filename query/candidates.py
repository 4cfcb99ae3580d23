"""The wide pass: dense and lexical candidates within the scope, with both scores, hydrated. Does I/O on both stores.

Hydrating from the catalog comes before fusion, so that a ghost (a vector whose turn was replaced or forgotten) can
neither be returned nor bend the scores of the others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from producers.errors import ScopeRecallError
from producers.scripts import foreign_scripts
from workers.embedding.port import Embedder
from workers.embedding.registry import recommended_multilingual
from workers.stores.catalog import Catalog, StoredChunk
from workers.stores.scope import Scope
from workers.stores.space import Space
from workers.stores.vectors import VectorStore

CHUNKS_PER_TURN = 4
"""Chunks each leg may bring for one turn of the wide pass: a long turn has many, and they count once."""
SCRIPT_NAMES = {"han": "Chinese characters", "kana": "Japanese kana", "hangul": "Korean"}


@dataclass
class Pool:
    """Candidates by vector id. `dense` is None when that leg stayed out."""

    chunks: dict[str, StoredChunk] = field(default_factory=dict)
    dense: dict[str, float] | None = None
    """Cosine similarity, exact for every candidate."""
    lexical: dict[str, float] | None = None
    """BM25; a candidate without a score shares no term with the question, or fell outside the leg's limit."""
    lexical_cut: bool = False
    """Whether the lexical leg stopped at its limit."""
    degraded: list[str] = field(default_factory=list)


class CandidateSearch:
    """The wide pass over one space."""

    def __init__(self, catalog: Catalog, vectors: VectorStore, space: Space, embedder: Callable[[], Embedder]) -> None:
        self._catalog = catalog
        self._vectors = vectors
        self._space = space
        self._embedder = embedder

    def gather(self, text: str, scope: Scope, wide: int) -> Pool:
        """Candidates for `wide` turns from each leg. A leg that fails stays out, and `degraded` says so.

        Raises what the lexical leg raised when no leg is left.
        """
        pool = Pool()
        limit = wide * CHUNKS_PER_TURN
        vector = self._question_vector(text, pool)
        scored: dict[str, float] = {}
        if vector is not None:
            try:
                how = self._catalog.spaces.search(self._space)  # the job `index` changes it while this process runs
                scored = {c.vector_id: c.score for c in self._vectors.dense(self._space, vector, scope, limit, how)}
                pool.dense = {}
            except ScopeRecallError as error:
                pool.degraded.append(f"dense: {error}; the answer is from the lexical search alone")
        try:
            found = self._vectors.lexical(self._space, text, scope, limit)
            pool.lexical = {c.vector_id: c.score for c in found}
            pool.lexical_cut = len(found) >= limit
        except ScopeRecallError as error:
            if pool.dense is None:
                raise
            pool.degraded.append(f"lexical: {error}; the answer is from the dense search alone")
        ids = list(dict.fromkeys([*scored, *(pool.lexical or {})]))
        pool.chunks = self._catalog.hydrate(ids, scope, self._space)
        self._keep_hydrated(pool, scored, vector)
        return pool

    def _keep_hydrated(self, pool: Pool, scored: dict[str, float], vector: np.ndarray | None) -> None:
        """Drop ghosts, and give lexical-only candidates the exact cosine that the dense leg would have given them."""
        if pool.lexical is not None:
            pool.lexical = {key: score for key, score in pool.lexical.items() if key in pool.chunks}
        if pool.dense is None or vector is None:
            return
        pool.dense = {key: score for key, score in scored.items() if key in pool.chunks}
        missing = [key for key in pool.chunks if key not in pool.dense]
        for key, stored in self._vectors.vectors_of(self._space, missing).items():
            pool.dense[key] = float(stored @ vector)

    def _question_vector(self, text: str, pool: Pool) -> np.ndarray | None:
        try:
            embedder = self._embedder()
            foreign = foreign_scripts(text, embedder.scripts)
            if foreign:
                names = ", ".join(SCRIPT_NAMES.get(name, name) for name in foreign)
                pool.degraded.append(
                    f"dense: {embedder.name} does not speak the question's {names}, so the answer is from the lexical "
                    f"search alone; a multilingual embedder such as {recommended_multilingual()} would answer better"
                )
                return None
            vector: np.ndarray = embedder.embed_query(text)[0]
            return vector
        except ScopeRecallError as error:
            pool.degraded.append(f"dense: {error}; the answer is from the lexical search alone")
            return None
