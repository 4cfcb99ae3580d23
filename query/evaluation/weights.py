"""The fit of the ranking's own weights: features gathered through the real recaller, once a question. Does I/O on both
stores while it gathers.

Questions in scripts without spaces have weights of their own (`query.ranking.weights_for`), so each kind is fitted by
itself.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from query.evaluation.asking import as_asked
from query.evaluation.fit import Case, Fit, fit_weights
from query.evaluation.ingests import Ingest
from query.evaluation.labelled import LabelledQuestion
from query.evaluation.metrics import TurnRef
from query.evaluation.variants import Variant
from query.ranking import SPACED, UNSPACED, Features, Weights, first_stage, settle, weights_for
from query.recall import Recaller

RERANKED = 2
"""Times the wide pass that the reranker reads here: other weights bring other turns into the wide pass. Turns further
down stay below those it read."""
KINDS = {"spaced": SPACED, "unspaced": UNSPACED}


@dataclass(frozen=True)
class Gathered:
    """What one question's candidates are ranked by."""

    features: Features
    places: Mapping[str, TurnRef]
    """Turn key → (session_id, turn_index)."""
    reranked: Mapping[str, float]
    """The reranker's scores by turn key; empty without one."""
    wide: int


def ranked(gathered: Gathered, weights: Weights) -> list[TurnRef]:
    """The turns of the wide pass, best first, as recall ranks them with these weights."""
    first = first_stage(gathered.features, weights)[: gathered.wide]
    final = settle(first, [gathered.reranked.get(one.turn) for one in first], weights)
    return [gathered.places[one.turn] for one in final]


def fits_of(
    ingest: Ingest,
    variant: Variant,
    questions: Sequence[LabelledQuestion],
    track: Callable[[Sequence[LabelledQuestion]], Iterable[LabelledQuestion]],
) -> dict[str, Fit[Weights]]:
    """A fit for each kind of question that has evidence in `questions`, by its name in `KINDS`."""
    settings = ingest.settings(variant.settings)
    recaller = Recaller.open(settings)
    cases: dict[str, list[Case[Gathered]]] = {}
    for question in track([one for one in questions if one.scored]):
        pool, features, scores = recaller.study(as_asked(question, settings), RERANKED * settings.wide)
        places = {one.turn_key: (one.turn.session_id, one.turn_index) for one in pool.chunks.values()}
        case = Case(question.judged, question.tenant, Gathered(features, places, scores, settings.wide))
        cases.setdefault(_kind(question.query), []).append(case)
    return {kind: fit_weights(cases[kind], ranked, default) for kind, default in KINDS.items() if kind in cases}


def told(kind: str, fit: Fit[Weights]) -> list[str]:
    """The fit for people: the weights, then what to think of them."""
    default, fitted = dataclasses.asdict(fit.defaults), dataclasses.asdict(fit.weights)
    shown = ", ".join(
        f"{name} = {value:g}" + (f" (default {default[name]:g})" if value != default[name] else "")
        for name, value in fitted.items()
    )
    return [f"weights for {kind} scripts, {fit.in_sample.questions} questions: {shown}", fit.advice()]


def as_json(fits: Mapping[str, Fit[Weights]]) -> dict[str, Any]:
    return {kind: fit.as_dict() for kind, fit in fits.items()}


def _kind(text: str) -> str:
    weights = weights_for(text)
    return next(kind for kind, one in KINDS.items() if one == weights)
