"""One job over every stored space: their outcomes as one, and a space that fails does not keep the others waiting."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from producers.errors import StoreUnavailable
from workers.maintenance.job import JobContext, Outcome
from workers.stores.spaces import StoredSpace

OVERTAKEN = "this run lost its lease, and another one may be at it: the rest is left to that one"


def every_space(context: JobContext, keep: Callable[[StoredSpace], Outcome]) -> Outcome:
    """`keep` for each stored space, while nobody else rewrites tables; each space gives others their turn."""
    outcomes = {}
    for stored in context.catalog.spaces.written():
        with context.catalog.locks.maintaining():
            if not context.lease.held:  # waiting for the lock may have taken long
                outcomes[stored.space.id] = Outcome(None, problem=OVERTAKEN)
                break
            try:
                outcomes[stored.space.id] = keep(stored)
            except StoreUnavailable as error:
                outcomes[stored.space.id] = Outcome(None, problem=str(error))
    return together(outcomes)


def together(outcomes: Mapping[str, Outcome]) -> Outcome:
    """The outcomes by space as one; of a single space it is that one's. Pure."""
    if len(outcomes) == 1:
        return next(iter(outcomes.values()))
    return Outcome(
        did="; ".join(f"{space}: {one.did}" for space, one in outcomes.items() if one.did) or None,
        before=_named({space: one.before for space, one in outcomes.items()}),
        after=_named({space: one.after for space, one in outcomes.items()}),
        problem="; ".join(one.problem for one in outcomes.values() if one.problem) or None,
    )


def _named(figures: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    return {f"{space}: {name}": value for space, found in figures.items() for name, value in found.items()}
