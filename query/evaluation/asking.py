"""Every question of a labelled set, asked with one setting through the real recaller. Does I/O on both stores."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from producers.settings import Settings
from query.answer import Answer
from query.evaluation.ingests import Ingest
from query.evaluation.labelled import LabelledQuestion
from query.evaluation.metrics import TurnRef
from query.evaluation.variants import Variant
from query.question import Question
from query.recall import Recaller
from query.recency import Recency
from workers.stores.scope import Scope

PATIENT_MS = 600_000
"""Unless a deadline is given the ranking is measured, and not how busy the machine is."""
WITHIN_NAME = re.compile(r"[^\w.=+@-]+")
LEG = re.compile(r"\w+(?=:)")


@dataclass(frozen=True)
class Reply:
    """What is kept of an answer."""

    query_id: str
    hits: list[tuple[str, int, float]]
    """(session_id, turn_index, score), best first."""
    degraded: list[str]
    total_ms: float
    in_context: bool = False
    """The lines before the question were read with it."""

    @property
    def turns(self) -> list[TurnRef]:
        return [(session, index) for session, index, _ in self.hits]


@dataclass(frozen=True)
class Run:
    """One setting's answers to every question, in the set's order."""

    variant: Variant
    embedder: str
    reranker: str | None
    """None when no answer was reranked."""
    ingest: Ingest
    replies: list[Reply]

    @property
    def ranked(self) -> dict[str, list[TurnRef]]:
        return {reply.query_id: reply.turns for reply in self.replies}

    @property
    def in_context(self) -> int:
        """Questions that were read with the lines before them."""
        return sum(reply.in_context for reply in self.replies)

    @property
    def degraded(self) -> Counter[str]:
        return Counter(line for reply in self.replies for line in reply.degraded)

    @property
    def degraded_shares(self) -> dict[str, float]:
        """Share of the answers that each leg (dense, lexical, rerank, …) made poorer."""
        legs = Counter(leg for reply in self.replies for leg in {_leg(line) for line in reply.degraded})
        return {leg: count / len(self.replies) for leg, count in sorted(legs.items())}

    def quantile_ms(self, share: float) -> float | None:
        """Milliseconds of a recall that `share` of them stay within; the first one, which warms up, is left out."""
        times = sorted(reply.total_ms for reply in self.replies[1:] or self.replies)
        return times[max(0, math.ceil(share * len(times)) - 1)] if times else None


def ask(
    variant: Variant,
    ingest: Ingest,
    questions: Sequence[LabelledQuestion],
    track: Callable[[Sequence[LabelledQuestion]], Iterable[LabelledQuestion]],
) -> Run:
    """Ask every question; `track` passes them through and shows how far they are."""
    settings = ingest.settings(variant.settings)
    recaller = Recaller.open(settings)
    replies = []
    embedder, reranker = "", None
    for question in track(questions):
        asked = as_asked(question, settings)
        answer = recaller.recall(asked)
        embedder, reranker = answer.embedder, reranker or answer.reranker
        replies.append(_reply(question, asked, answer))
    return Run(variant, embedder, reranker, ingest, replies)


def as_asked(question: LabelledQuestion, settings: Settings) -> Question:
    """The question as recall takes it, for as many turns as the wide pass brings."""
    scope = Scope(tenant=question.tenant, sessions=question.sessions)
    # A narrower wide pass is asked for what it has: its R@50 then is what it found at all.
    return Question(
        question.query,
        scope,
        k=settings.wide,
        wide=settings.wide,
        deadline_ms=settings.deadline_ms if "deadline_ms" in settings.model_fields_set else PATIENT_MS,
        recency=Recency(settings.recency_weight, settings.half_life_days),
        min_score=settings.min_score,
        query_context=question.query_context,
        query_context_weight=settings.query_context_weight,
        fold=False,  # labels name turns, not what they say
    )


def write_results(path: Path, run: Run) -> None:
    """One line a question: {"query_id", "hits": [{"session_id", "turn_index", "score"}]}, best first."""
    with path.open("w", encoding="utf-8") as file:
        for reply in run.replies:
            hits = [
                {"session_id": session, "turn_index": index, "score": score} for session, index, score in reply.hits
            ]
            file.write(json.dumps({"query_id": reply.query_id, "hits": hits}, ensure_ascii=False) + "\n")


def results_paths(out: Path, variants: Sequence[Variant]) -> list[Path]:
    """`out` for one setting; for several, `out` with each one's name before its suffix."""
    if len(variants) == 1:
        return [out]
    found: list[Path] = []
    for variant in variants:
        name = WITHIN_NAME.sub("-", variant.name)
        path = out.with_name(f"{out.stem}.{name}{out.suffix}")
        if path in found:
            path = out.with_name(f"{out.stem}.{name}-{len(found)}{out.suffix}")
        found.append(path)
    return found


def _reply(question: LabelledQuestion, asked: Question, answer: Answer) -> Reply:
    hits = [(hit.session_id, hit.turn_index, hit.score) for hit in answer.hits]
    in_context = asked.in_context is not None and not {"query_context", "dense"} & set(map(_leg, answer.degraded))
    return Reply(question.judged.query_id, hits, answer.degraded, answer.timings_ms["total"], in_context)


def _leg(line: str) -> str:
    found = LEG.match(line)
    return found.group() if found else "other"
