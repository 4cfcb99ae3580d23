"""Recall: a question in, the turns that answer it out, with a block of context for the prompt. Does I/O on both stores.

    embed → candidates (dense, lexical) → hydrate, look around → rank → rerank the pool → recency → top k → context

It needs no Redis. What goes wrong on the way makes the answer poorer, never an error, as long as one leg is left; the
answer then says so in `degraded`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

from producers.errors import NotReady, ScopeRecallError
from producers.events import from_utc_microseconds
from producers.settings import Settings
from query.answer import Answer, Hit, hit_of
from query.around import Neighbour, neighbours_of, passages
from query.candidates import CandidateSearch, Pool
from query.confidence import confidence
from query.context import Layout, context_block
from query.current import CurrentModels
from query.days import days_named
from query.features import features_of
from query.folding import fold
from query.gate import Gate
from query.models import Models
from query.passages import passages_of
from query.question import MAX_WIDE, Question
from query.ranking import Features, Ranked, first_stage, settle, weights_for
from query.recency import by_recency
from query.stopwatch import Stopwatch
from query.why import Run, why
from query.words import WordCounts
from workers.stores.catalog import Catalog
from workers.stores.scope import Span
from workers.stores.vectors import VectorStore

DEADLINE_RESERVE = 0.02
"""Seconds kept back from reranking for the steps after it."""
LOOK_SECONDS = 0.14
"""What looking around the finds of the searches takes, three other callers beside it; with less left it is not done."""
SEARCHES = 2
"""Wide passes at once in a process: one computes while the other waits for its stores. With more they wait for the
interpreter at each row and each layer of a model: of four callers the slowest twentieth took 244 ms instead of 212."""
WIDER = 4
"""How many times wider is looked where the wide pass is full of turns that say the same."""
WARM_UP = "warm up"
NO_HURRY = 3600.0


class Recaller:
    """Answers questions over one catalog and its active space; models are loaded at their first use and stay.

    When reads are switched to another space it goes on with the one before until the new model is loaded.
    """

    def __init__(self, settings: Settings, catalog: Catalog, vectors: VectorStore, models: Models) -> None:
        self._settings = settings
        self._catalog = catalog
        self._vectors = vectors
        self._current = CurrentModels(settings, catalog, models)
        self._searches = Gate(SEARCHES)
        self._words = WordCounts()
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

    def warm_up(self) -> None:
        """Load the models and the vector store's library now rather than with the first question."""
        self._current.models().load(WARM_UP)
        self._vectors.connect()

    def close(self) -> None:
        """Let go of the catalog's connections; do not ask after it."""
        self._catalog.close()

    def recall(self, question: Question) -> Answer:
        """Answer one question. Raises only when no leg can search at all."""
        loading = Stopwatch(0)
        with loading.stage("load"):
            models = self._current.models()
            models.load(question.text)
            self._vectors.open(models.space)
        newest = [(recent.session_id, recent.turns) for recent in question.exclude_recent]
        question = replace(question, scope=self._catalog.newest_hidden(question.scope, newest, question.seen.until_us))
        # Loading is paid once by a process, so it is not taken out of the question's time.
        clock = Stopwatch(question.deadline_ms / 1000)
        answer = self._answer(models, question, clock)
        clock.timings["total"] = clock.elapsed() * 1000
        clock.timings["load"] = loading.timings["load"]
        answer.timings_ms = {name: round(value, 1) for name, value in clock.timings.items()}
        return answer

    def _answer(self, models: Models, question: Question, clock: Stopwatch) -> Answer:
        search = CandidateSearch(self._catalog, self._vectors, models.space, models.embedder)
        look_by = clock.deadline - LOOK_SECONDS
        with clock.stage("candidates"), self._searches.place(clock.deadline):
            days = self._days(question)
            pool = search.gather(question.text, question.seen, question.wide, question.in_context, look_by, days)
        with clock.stage("fusion"):
            features = features_of(question.text, pool, self._words, days)
            # Every candidate's place is worked out only for someone who asks about one.
            counted = question.wide if question.why is None else None
            first = first_stage(features, weights_for(question.text), counted)
            ranked = first[: question.wide]
        with clock.stage("rerank"):
            ranked, reranker = self._rerank(models, question, ranked, pool, clock)
        ranked = by_recency(ranked, _said(pool), question.recency, question.as_of or datetime.now(UTC))
        with clock.stage("context"):
            sure, confident = self._confident(question, ranked, reranker, pool)
            top = distinct(confident, pool, question)
        if len(ranked) == question.wide and len(top) < question.k <= len(confident):  # copies fill the wide pass
            if question.wide < MAX_WIDE and clock.elapsed() < question.deadline_ms / 2000:
                return self._answer(models, replace(question, wide=min(WIDER * question.wide, MAX_WIDE)), clock)
            pool.degraded.append(
                f"folding: the {question.wide} best turns say only {len(top)} different things, and there may be "
                "others: raise deadline_ms or wide, or filter"
            )
        with clock.stage("context"):
            hits = [hit_of(pool, one, also, sure[one.turn], explain=question.explain) for one, also in top]
            around = self._around(question, hits, pool.degraded)
            context = context_block(passages(hits, around, question.neighbours), self._layout)
        accounts = []
        if question.why is not None:
            unsure = {turn: value for turn, value in sure.items() if not _reaches(value, question.min_score)}
            run = Run(question, pool, first, ranked, top, unsure)
            accounts = why(question.why, run, self._catalog)
        return Answer(
            query=question.text,
            hits=hits,
            context=context,
            around=around,
            embedder=models.space.embedder,
            reranker=reranker,
            degraded=pool.degraded,
            why=accounts,
        )

    def _confident(
        self, question: Question, ranked: Sequence[Ranked], reranker: str | None, pool: Pool
    ) -> tuple[dict[str, float | None], list[Ranked]]:
        """How sure each turn is, by turn key, and those that are sure enough."""
        embedder = self._current.models().space.embedder
        sure = {one.turn: confidence(one, reranker, embedder) for one in ranked}
        unknown = sum(value is None for value in sure.values()) if question.min_score else 0
        if unknown:
            pool.degraded.append(
                f"min_score: of {unknown} of {len(sure)} candidates neither {reranker or 'the reranker none'} nor "
                f"{embedder} can tell a confidence, so they are not left out for it"
            )
        return sure, [one for one in ranked if _reaches(sure[one.turn], question.min_score)]

    def _around(self, question: Question, hits: list[Hit], degraded: list[str]) -> list[Neighbour]:
        try:
            return neighbours_of(self._catalog, hits, question.seen, question.neighbours)
        except ScopeRecallError as error:
            degraded.append(f"neighbours: {error}; the hits are shown without them")
            return []

    def study(self, question: Question, reranked: int) -> tuple[Pool, Features, dict[str, float]]:
        """The candidates of a question, what they are ranked by, and the reranker's scores of the best `reranked` turns
        by turn key, whatever time it takes: for a fit of the weights. Raises as `recall`."""
        models = self._current.models()
        search = CandidateSearch(self._catalog, self._vectors, models.space, models.embedder)
        days = self._days(question)
        pool = search.gather(question.text, question.seen, question.wide, question.in_context, days=days)
        features = features_of(question.text, pool, self._words, days)
        first = first_stage(features, weights_for(question.text), reranked)
        ranked, _ = self._rerank(models, question, first, pool, Stopwatch(NO_HURRY))
        parts = {one.turn: one.parts["rerank"].raw for one in ranked if "rerank" in one.parts}
        return pool, features, {turn: raw for turn, raw in parts.items() if raw is not None}

    def _days(self, question: Question) -> tuple[Span, ...]:
        return days_named(question.text, question.as_of or datetime.now(UTC), self._settings.time_zone or UTC)

    def _rerank(
        self, models: Models, question: Question, ranked: list[Ranked], pool: Pool, clock: Stopwatch
    ) -> tuple[list[Ranked], str | None]:
        """The pool in its final order, and the name of the reranker that read it; None when none did."""
        weights = weights_for(question.text)
        reranker, scores = None, None
        try:
            reranker = models.reranker(question.text) if ranked else None
            if reranker is not None:
                passages = passages_of([pool.chunks[one.id] for one in ranked])
                scores = reranker.rerank(question.text, passages, deadline=clock.deadline - DEADLINE_RESERVE).scores
        except ScopeRecallError as error:
            pool.degraded.append(f"rerank: {error}; the fused order is kept")
            return settle(ranked, None, weights), None
        left_out = scores.count(None) if scores is not None else 0
        if left_out:
            pool.degraded.append(
                f"rerank: {left_out} of {len(ranked)} candidates were not reached within {question.deadline_ms} ms; "
                "they keep their place in the fused order. Raise deadline_ms, or choose a faster reranker"
            )
        name = reranker.name if reranker is not None and left_out < len(ranked) else None
        return settle(ranked, scores, weights), name


def _said(pool: Pool) -> dict[str, datetime | None]:
    """When each turn of the pool was said, by turn key."""
    return {chunk.turn_key: from_utc_microseconds(chunk.turn.created_at_us) for chunk in pool.chunks.values()}


def _reaches(confidence: float | None, least: float) -> bool:
    """Whether a hit stays; what no model can say is not held against it."""
    return confidence is None or confidence >= least


def distinct(ranked: Sequence[Ranked], pool: Pool, question: Question) -> list[tuple[Ranked, list[Ranked]]]:
    """The best k that say different things, each with those that say the same; without folding the best k."""
    if not question.fold:
        return [(one, []) for one in ranked[: question.k]]
    chunks = [pool.chunks[one.id] for one in ranked]
    # Of a turn in several chunks only one is seen here; and what two people say is two things.
    whole = [f"{one.speaker or one.turn.role}: {one.text}" if one.total_chunks == 1 else None for one in chunks]
    kept = fold(whole, question.k)
    return [(ranked[index], [ranked[other] for other in others]) for index, others in kept.items()]
