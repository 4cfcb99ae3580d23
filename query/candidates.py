"""The wide pass: dense and lexical candidates within the scope and what stands around them. Does I/O on both stores.

Hydrating from the catalog comes before any ranking, so that a ghost (a vector whose turn was replaced or forgotten) can
neither be returned nor bend the scores of the others.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from producers.errors import ScopeRecallError
from producers.scripts import foreign_scripts
from query.conversation import CONVERSATION, FOLLOWING, PREVIOUS, around, leans
from query.query_context import InContext, leaning
from workers.completeness import Completeness
from workers.embedding.port import Embedder
from workers.embedding.registry import recommended_multilingual
from workers.stores.catalog import Catalog, StoredChunk
from workers.stores.lance_search import Candidate
from workers.stores.placed_turns import Place, PlacedTurn
from workers.stores.scope import Scope, Span
from workers.stores.space import Space
from workers.stores.vectors import VectorStore

CHUNKS_PER_TURN = 4
"""Chunks each leg may bring for one turn of the wide pass: a long turn has many, and they count once."""
LEG_TURNS = 2
"""Turns that each leg may bring for one of the wide pass. Twice as many found no more on any set, at twice the work."""
NEIGHBOUR_CHARS = 2400
"""Of a neighbour, what is looked at: a longer one counts for less the longer it is."""
SCRIPT_NAMES = {"han": "Chinese characters", "kana": "Japanese kana", "hangul": "Korean"}


@dataclass
class Pool:
    """Candidates by vector id, and the turns around them."""

    chunks: dict[str, StoredChunk] = field(default_factory=dict)
    dense: dict[str, float] | None = None
    """Cosine similarity, exact for every candidate; None when the dense leg stayed out."""
    around: dict[Place, PlacedTurn] = field(default_factory=dict)
    """Turns of the conversation that candidates lean on, whether or not they are candidates themselves."""
    degraded: list[str] = field(default_factory=list)


class CandidateSearch:
    """The wide pass over one space."""

    def __init__(self, catalog: Catalog, vectors: VectorStore, space: Space, embedder: Callable[[], Embedder]) -> None:
        self._catalog = catalog
        self._vectors = vectors
        self._space = space
        self._embedder = embedder
        self._completeness = Completeness(catalog, vectors, space)

    def gather(
        self,
        text: str,
        scope: Scope,
        wide: int,
        in_context: InContext | None = None,
        look_by: float = math.inf,
        days: tuple[Span, ...] = (),
    ) -> Pool:
        """Candidates for `wide` turns from each leg, as many again of the `days` that the question names, and their
        neighbours. A leg that fails stays out, and when the searches end after `look_by`, a `time.monotonic()` value,
        less is looked at; `degraded` says so.

        Raises what the lexical leg raised when no leg is left.
        """
        pool = Pool()
        limit = wide * CHUNKS_PER_TURN
        vector = self._question_vector(text, in_context, pool)
        scopes = [scope, replace(scope, within=days)] if days else [scope]
        near: list[list[Candidate]] = []
        if vector is not None:
            try:
                how = self._catalog.spaces.search(self._space)  # the job `index` changes it while this process runs
                near = [self._vectors.dense(self._space, vector, one, limit, how) for one in scopes]
                pool.dense = {}
            except ScopeRecallError as error:
                pool.degraded.append(f"dense: {error}; the answer is from the lexical search alone")
        sharing: list[list[Candidate]] = []
        try:
            sharing = [self._vectors.lexical(self._space, text, one, limit) for one in scopes]
        except ScopeRecallError as error:
            if pool.dense is None:
                raise
            pool.degraded.append(f"lexical: {error}; the candidates are from the dense search alone")
        late = time.monotonic() > look_by
        turns = wide if late else wide * LEG_TURNS
        dense = {one.vector_id: one.score for found in near for one in leading(found, turns)}
        lexical = [one.vector_id for found in sharing for one in leading(found, turns)]
        ids = list(dict.fromkeys([*dense, *lexical]))
        pool.chunks = self._catalog.hydrate(ids, scope, self._space)
        if late:
            pool.degraded.append(_hurried(wide))
        else:
            self._look_around(pool, scope, {one.vector_id for found in near + sharing for one in found[:wide]})
        self._keep_hydrated(pool, dense, None if late else vector)
        self._tell_what_is_missing(pool, scope, suspicious=not ids)
        return pool

    def _tell_what_is_missing(self, pool: Pool, scope: Scope, *, suspicious: bool) -> None:
        try:
            missing = self._completeness.problem(suspicious=suspicious)
            unfiltered = self._completeness.filter_problem(scope)
        except ScopeRecallError as error:  # what was found stands
            pool.degraded.append(f"completeness: {error}; what was found is ranked")
            return
        pool.degraded += [problem for problem in (missing, unfiltered) if problem]

    def _look_around(self, pool: Pool, scope: Scope, leading: Collection[str]) -> None:
        """Fetch the turns that candidates lean on; those beside the leading ones become candidates as well."""
        leaning = [chunk for chunk in pool.chunks.values() if leans(chunk)]
        places = {place for chunk in leaning for place in around(chunk).values()}
        turns = self._catalog.turns_at(places, scope, NEIGHBOUR_CHARS)
        pool.around = {turn.place: turn for turn in turns if turn.turn.role in CONVERSATION}
        beside = {
            place
            for chunk in leaning
            if chunk.vector_id in leading
            for far, place in around(chunk).items()
            if far in (PREVIOUS, FOLLOWING)
        }
        keys = [pool.around[place].turn_key for place in sorted(beside & pool.around.keys())]
        known = {chunk.turn_key for chunk in pool.chunks.values()}
        new = self._catalog.chunks_of([key for key in keys if key not in known], self._space)
        pool.chunks |= self._catalog.hydrate([one for ids in new.values() for one in ids], scope, self._space)

    def _keep_hydrated(self, pool: Pool, dense: dict[str, float], vector: np.ndarray | None) -> None:
        """Drop ghosts, and give the other candidates the exact cosine that the dense leg would have given them."""
        if pool.dense is None:
            return
        pool.dense = {key: score for key, score in dense.items() if key in pool.chunks}
        if vector is None:  # no time: of the others nothing is known, which counts as the lowest
            return
        missing = [key for key in pool.chunks if key not in pool.dense]
        try:
            vectors = self._vectors.vectors_of(self._space, missing)
        except ScopeRecallError as error:  # a search reads only some files, and another one may be broken
            pool.degraded.append(f"dense: {error}; what only other searches found counts as the least similar")
            return
        for key, stored in vectors.items():
            pool.dense[key] = float(stored @ vector)

    def _question_vector(self, text: str, in_context: InContext | None, pool: Pool) -> np.ndarray | None:
        try:
            embedder = self._embedder()
            foreign = _foreign(text, embedder)
            if foreign:
                better = f"a multilingual embedder such as {recommended_multilingual()} would answer better"
                pool.degraded.append(
                    f"dense: {embedder.name} does not speak the question's {foreign}, so the answer is from the "
                    f"lexical search alone; {better}"
                )
                return None
            vector: np.ndarray = embedder.embed_query(text)[0]
        except ScopeRecallError as error:
            pool.degraded.append(f"dense: {error}; the answer is from the lexical search alone")
            return None
        return vector if in_context is None else self._leaning(vector, in_context, embedder, pool)

    @staticmethod
    def _leaning(vector: np.ndarray, in_context: InContext, embedder: Embedder, pool: Pool) -> np.ndarray:
        """The question's vector, leaning on the lines before it where the embedder can read them."""
        try:
            foreign = _foreign(in_context.text, embedder)
            if not foreign:
                return leaning(vector, embedder.embed_query(in_context.text)[0], in_context.weight)
            reason = f"{embedder.name} does not speak its {foreign}"
        except ScopeRecallError as error:
            reason = str(error)
        pool.degraded.append(f"query_context: {reason}; the question was searched for by itself")
        return vector


def _hurried(wide: int) -> str:
    return (
        f"candidates: little time was left after the searches, so each brought at most {wide} turns instead of "
        f"{wide * LEG_TURNS}, not compared by the other, and ranked without what stands around them. Raise deadline_ms"
    )


def _foreign(text: str, embedder: Embedder) -> str:
    """The names of scripts in `text` that the embedder does not speak; empty when it can read it."""
    return ", ".join(SCRIPT_NAMES.get(name, name) for name in foreign_scripts(text, embedder.scripts))


def leading(found: Sequence[Candidate], turns: int) -> list[Candidate]:
    """The first of `found`, up to so many turns; each comes with all its chunks that lie before the cut."""
    seen: set[str] = set()
    kept = []
    for one in found:
        seen.add(one.turn_key)
        if len(seen) > turns:
            break
        kept.append(one)
    return kept
