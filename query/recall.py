"""Recall: a question in, the turns that answer it out, with a block of context for the prompt. Does I/O on both stores.

    embed → candidates (dense, lexical) → hydrate → fuse → best chunk a turn → rerank the whole pool → top k → context

It needs no Redis. What goes wrong on the way makes the answer poorer, never an error, as long as one leg is left; the
answer then says so in `degraded`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any

from producers.errors import NotReady, ScopeRecallError, UsageError
from producers.events import from_utc_microseconds
from producers.scripts import foreign_scripts
from producers.settings import Settings
from query.around import MAX_NEIGHBOURS, Neighbour, neighbours_of, passages
from query.candidates import CandidateSearch, Pool
from query.context import Layout, context_block
from query.current import CurrentModels
from query.folding import fold
from query.fusion import DENSE_WEIGHT, LEXICAL_WEIGHT, Fused, Leg, Place, best_per_turn, blend, follow_on, fuse
from query.models import Models
from query.recent import Recent
from workers.stores.catalog import Catalog, StoredChunk
from workers.stores.scope import Scope
from workers.stores.vectors import VectorStore

MAX_QUESTION_CHARS = 100_000
DEADLINE_RESERVE = 0.02
"""Seconds kept back from reranking for the steps after it."""


@dataclass(frozen=True)
class Question:
    """One question with its scope and sizes."""

    text: str
    scope: Scope
    k: int = 5
    wide: int = 50
    deadline_ms: int = 5000
    explain: bool = False
    neighbours: int = 0
    """Turns before and after each hit that the context block shows too."""
    fold: bool = True
    """Let one hit stand for those that say the same."""
    exclude_recent: tuple[Recent, ...] = ()
    """Turns that are not recalled since the agent that asks still has them before it."""

    def __post_init__(self) -> None:
        if not self.text.strip():
            raise UsageError("query: empty; ask something")
        if len(self.text) > MAX_QUESTION_CHARS:
            raise UsageError(f"query: {len(self.text):,} characters, over the limit of {MAX_QUESTION_CHARS:,}")
        if not 1 <= self.k <= self.wide:
            raise UsageError(f"k = {self.k}: must be from 1 to the wide pass of {self.wide}; raise --wide for more")
        if not 0 <= self.neighbours <= MAX_NEIGHBOURS:
            raise UsageError(f"neighbours = {self.neighbours}: must be from 0 to {MAX_NEIGHBOURS}")


@dataclass(frozen=True)
class Hit:
    """One recalled turn, shown by its best chunk."""

    tenant: str
    session_id: str
    turn_index: int
    role: str
    speaker: str | None
    agent_id: str | None
    source: str
    tags: tuple[str, ...]
    metadata: dict[str, Any]
    created_at: datetime | None
    content: str
    """The chunk's text: content[span[0]:span[1]] of the turn."""
    span: tuple[int, int]
    chunk_index: int
    total_chunks: int
    kind: str
    language: str | None
    score: float
    """Comparable within one answer only."""
    vector_id: str
    also: tuple[str, ...] = ()
    """SESSION:TURN of the candidates that say the same and were folded into this one, best first."""
    explain: dict[str, Any] | None = None


@dataclass
class Answer:
    """What recall found, and how."""

    query: str
    hits: list[Hit]
    context: str
    embedder: str
    reranker: str | None
    around: list[Neighbour] = field(default_factory=list)
    """The turns next to the hits, when they were asked for."""
    degraded: list[str] = field(default_factory=list)
    timings_ms: dict[str, float] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """The answer for programs; times as ISO 8601."""
        result = asdict(self)
        for hit in result["hits"]:
            hit["created_at"] = hit["created_at"].isoformat() if hit["created_at"] else None
            if hit["explain"] is None:
                del hit["explain"]
        result["around"] = [turn.as_json() for turn in self.around]
        return result


class Recaller:
    """Answers questions over one catalog and its active space; models are loaded at their first use and stay.

    When reads are switched to another space it goes on with the one before until the new model is loaded.
    """

    def __init__(self, settings: Settings, catalog: Catalog, vectors: VectorStore, models: Models) -> None:
        self._settings = settings
        self._catalog = catalog
        self._vectors = vectors
        self._current = CurrentModels(settings, catalog, models)
        self._layout = Layout.of(settings)

    @classmethod
    def open(cls, settings: Settings) -> Recaller:
        """Open the stores for reading. Raises `NotReady` when nothing was ever stored there."""
        catalog = Catalog.open(settings.catalog_location)
        active = catalog.spaces.active()
        if active is None:
            catalog.close()  # a service asks again and again
            raise NotReady("nothing has been stored yet: start `scope-recall up`, push some turns, then recall")
        models = Models(settings, active, catalog.spaces.written())
        return cls(settings, catalog, VectorStore(settings.vectors_location), models)

    def recall(self, question: Question) -> Answer:
        """Answer one question. Raises only when no leg can search at all."""
        loading = Stopwatch(0)
        with loading.stage("load"):
            models = self._current.models()
            models.load()
        search = CandidateSearch(self._catalog, self._vectors, models.space, models.embedder)
        # Loading is paid once by a process, so it is not taken out of the question's time.
        clock = Stopwatch(question.deadline_ms / 1000)
        with clock.stage("candidates"):
            newest = [(recent.session_id, recent.turns) for recent in question.exclude_recent]
            scope = self._catalog.newest_hidden(question.scope, newest)
            pool = search.gather(question.text, scope, question.wide)
        with clock.stage("fusion"):
            ranked = rank_turns(pool, question.wide)
        with clock.stage("rerank"):
            ranked, reranker = self._rerank(models, question, ranked, pool, clock)
        with clock.stage("context"):
            hits = top_hits(pool, ranked, question)
            around = self._around(hits, scope, question.neighbours, pool.degraded)
            context = context_block(passages(hits, around, question.neighbours), self._layout)
        clock.timings["total"] = clock.elapsed() * 1000
        clock.timings["load"] = loading.timings["load"]
        return Answer(
            query=question.text,
            hits=hits,
            context=context,
            around=around,
            embedder=models.space.embedder,
            reranker=reranker,
            degraded=pool.degraded,
            timings_ms={name: round(value, 1) for name, value in clock.timings.items()},
        )

    def _around(self, hits: list[Hit], scope: Scope, reach: int, degraded: list[str]) -> list[Neighbour]:
        try:
            return neighbours_of(self._catalog, hits, scope, reach)
        except ScopeRecallError as error:
            degraded.append(f"neighbours: {error}; the hits are shown without them")
            return []

    def _rerank(
        self, models: Models, question: Question, ranked: list[Fused], pool: Pool, clock: Stopwatch
    ) -> tuple[list[Fused], str | None]:
        """The pool in its final order and the reranker's name; the fused order and None when there is none."""
        if not ranked:
            return ranked, None
        try:
            reranker = models.reranker()
            if reranker is None:
                return ranked, None
            foreign = foreign_scripts(question.text, reranker.scripts)
            if foreign:
                pool.degraded.append(
                    f"rerank: {reranker.name} does not speak the question's script ({', '.join(foreign)}); "
                    "the fused order is kept"
                )
                return ranked, None
            texts = [pool.chunks[one.id].text for one in ranked]
            scores = reranker.rerank(question.text, texts, deadline=clock.deadline - DEADLINE_RESERVE).scores
        except ScopeRecallError as error:
            pool.degraded.append(f"rerank: {error}; the fused order is kept")
            return ranked, None
        left_out = scores.count(None)
        if left_out:
            pool.degraded.append(
                f"rerank: {left_out} of {len(scores)} candidates were not reached within {question.deadline_ms} ms; "
                "they keep their place in the fused order. Raise deadline_ms, or choose a faster reranker"
            )
        return blend(ranked, scores), reranker.name


class Stopwatch:
    """Times the stages of one recall and knows when it must be over."""

    def __init__(self, seconds: float) -> None:
        self._start = time.monotonic()
        self.deadline = self._start + seconds
        """A `time.monotonic()` value."""
        self.timings: dict[str, float] = {}

    def elapsed(self) -> float:
        return time.monotonic() - self._start

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Record the milliseconds that the block took."""
        start = time.monotonic()
        yield
        self.timings[name] = (time.monotonic() - start) * 1000


def rank_turns(pool: Pool, wide: int) -> list[Fused]:
    """The best chunk of each of the best `wide` turns, best first."""
    legs = []
    if pool.dense is not None:
        legs.append(Leg("dense", pool.dense, DENSE_WEIGHT))
    if pool.lexical is not None:
        # Only a leg that ran to its end knows that an absent candidate shares no word with the question.
        legs.append(Leg("lexical", pool.lexical, LEXICAL_WEIGHT, floor=None if pool.lexical_cut else 0.0))
    best = best_per_turn(fuse(legs), {key: chunk.turn_key for key, chunk in pool.chunks.items()})
    places = {
        chunk.turn_key: Place(chunk.turn.session_id, chunk.turn_index, chunk.turn.role, chunk.turn_chars)
        for chunk in pool.chunks.values()
    }
    return list(follow_on(best, places).values())[:wide]


def top_hits(pool: Pool, ranked: list[Fused], question: Question) -> list[Hit]:
    """The best k that say different things, or the best k as they are."""
    chunks = [pool.chunks[one.id] for one in ranked]
    if question.fold:
        kept = fold([chunk.text for chunk in chunks], question.k)
    else:
        kept = {index: [] for index in range(len(chunks))[: question.k]}
    places = [f"{chunk.turn.session_id}:{chunk.turn_index}" for chunk in chunks]
    return [
        hit_of(chunks[index], ranked[index], also=[places[other] for other in also], explain=question.explain)
        for index, also in kept.items()
    ]


def hit_of(chunk: StoredChunk, ranked: Fused, *, also: Sequence[str] = (), explain: bool) -> Hit:
    """A hit from a hydrated chunk and its place in the ranking."""
    turn = chunk.turn
    return Hit(
        tenant=turn.tenant,
        session_id=turn.session_id,
        turn_index=chunk.turn_index,
        role=turn.role,
        speaker=chunk.speaker,
        agent_id=turn.agent_id,
        source=turn.source,
        tags=turn.tags,
        metadata=chunk.metadata,
        created_at=from_utc_microseconds(turn.created_at_us),
        content=chunk.text,
        span=(chunk.start, chunk.end),
        chunk_index=chunk.chunk_index,
        total_chunks=chunk.total_chunks,
        kind=chunk.kind,
        language=chunk.language,
        score=round(ranked.score, 6),
        vector_id=chunk.vector_id,
        also=tuple(also),
        explain={name: asdict(part) for name, part in ranked.parts.items()} if explain else None,
    )
