"""Why a given turn is or is not among the hits: the step at which it fell out. Does I/O on both stores; reads only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from query.candidates import Pool
from query.question import Question
from query.ranking import Ranked
from workers.stores.catalog import Catalog
from workers.stores.placed_turns import Place, PlacedTurn
from workers.stores.scope import Scope, ScopedTurn, in_scope
from workers.stores.terms import question_terms, terms

Verdict = Literal[
    "not stored",
    "filtered",
    "no candidate",
    "outside the wide pass",
    "below min_score",
    "folded",
    "below the cut",
    "returned",
]
LOOKED_AT_CHARS = 20_000
"""Of the turn's content, where shared words are looked for."""


@dataclass(frozen=True)
class Why:
    """What became of one turn."""

    session_id: str
    turn_index: int
    role: str | None
    verdict: Verdict
    reason: str
    rank: int | None = None
    """Among those that came as far as it did; 1 is the best."""
    of: int | None = None
    parts: dict[str, Any] | None = None
    """Its scores, as `--explain` shows them."""


@dataclass(frozen=True)
class Run:
    """What one recall did."""

    question: Question
    pool: Pool
    first: Sequence[Ranked]
    """Every candidate turn after the first stage."""
    final: Sequence[Ranked]
    """Those of the wide pass, in their last order."""
    hits: Sequence[tuple[Ranked, Sequence[Ranked]]]
    """Each with those that it stands for."""
    unsure: Mapping[str, float | None]
    """Turns that min_score left out, with their confidence."""


def why(place: Place, run: Run, catalog: Catalog) -> list[Why]:
    """One entry for each turn at the place (turns of two roles may share one); one that says so when there is none."""
    found = catalog.turns_at([place], Scope(tenant=run.question.seen.tenant), LOOKED_AT_CHARS, languages=True)
    if not found:
        reason = (
            f"tenant {run.question.seen.tenant} has no such turn: never pushed, still on its way (see `scope-recall "
            "status`), forgotten, or stored under another index"
        )
        return [Why(*place, None, "not stored", reason)]
    return [_why(turn, run) for turn in found]


def _why(turn: PlacedTurn, run: Run) -> Why:
    named = (*turn.place, turn.turn.role)
    if not in_scope(turn.turn, run.question.seen):
        return Why(*named, "filtered", f"left out by {', '.join(filters_against(turn.turn, run.question.seen))}")
    first = _rank(turn, run.first)
    if first is None:
        return Why(*named, "no candidate", _no_candidate(turn, run))
    final = _rank(turn, run.final)
    if final is None:
        rank, parts = first
        reason = f"its own scores put it at {rank} of {len(run.first)}, and the wide pass ends at {run.question.wide}"
        return Why(*named, "outside the wide pass", f"{reason}; raise wide", rank, len(run.first), parts)
    rank, parts = final
    for number, (hit, also) in enumerate(run.hits, 1):
        if hit.turn == turn.turn_key:
            return Why(*named, "returned", f"hit {number}", rank, len(run.final), parts)
        if any(one.turn == turn.turn_key for one in also):
            reason = f"it says the same as hit {number}, which stands for it; fold = false returns both"
            return Why(*named, "folded", reason, rank, len(run.final), parts)
    if turn.turn_key in run.unsure:
        reason = f"its confidence {run.unsure[turn.turn_key]:.3f} is below min_score = {run.question.min_score}"
        return Why(*named, "below min_score", reason, rank, len(run.final), parts)
    reason = f"{rank} of the {len(run.final)} that were ranked to the end, and {len(run.hits)} are returned"
    return Why(*named, "below the cut", f"{reason}; raise k", rank, len(run.final), parts)


def filters_against(turn: ScopedTurn, scope: Scope) -> list[str]:
    """The filters of the scope, each by itself, that leave the turn out. Pure."""
    alone = {
        "sessions": Scope(scope.tenant, sessions=scope.sessions),
        "agents": Scope(scope.tenant, agents=scope.agents),
        "roles": Scope(scope.tenant, roles=scope.roles),
        "tags": Scope(scope.tenant, tags=scope.tags),
        "where": Scope(scope.tenant, where=scope.where),
        "code_languages": Scope(scope.tenant, code_languages=scope.code_languages),
        "sources": Scope(scope.tenant, sources=scope.sources),
        "exclude_sessions": Scope(scope.tenant, exclude_sessions=scope.exclude_sessions),
        "exclude_recent": Scope(scope.tenant, before_turns=scope.before_turns),
        "since": Scope(scope.tenant, since=scope.since),
        "until or as_of": Scope(scope.tenant, until=scope.until),
    }
    return [name for name, filtering in alone.items() if not in_scope(turn, filtering)]


def _rank(turn: PlacedTurn, ranked: Sequence[Ranked]) -> tuple[int, dict[str, Any]] | None:
    for rank, one in enumerate(ranked, 1):
        if one.turn == turn.turn_key:
            return rank, {name: asdict(part) for name, part in one.parts.items()}
    return None


def _no_candidate(turn: PlacedTurn, run: Run) -> str:
    content, function = question_terms(run.question.text)
    shared = sorted(set(content or function) & {term.lower() for term in terms(turn.text)})
    words = f"shares {len(shared)} of its words with the question" if shared else "shares no word with the question"
    return (
        f"neither its vector nor its words are near enough: it {words}, and others of the scope are nearer "
        f"({len(run.first)} candidates); raise wide"
    )
