"""What a search of a LanceDB table is asked and gives back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workers.stores.lance_schema import KEY, TERMS, TURN


@dataclass(frozen=True)
class Candidate:
    """A chunk that a search found; higher scores are better, on the scale of the search that gave it."""

    vector_id: str
    turn_key: str
    score: float


def candidates(found: Any, scores: NDArray[np.float32]) -> list[Candidate]:
    return list(map(Candidate, found[KEY].to_pylist(), found[TURN].to_pylist(), scores.tolist()))


def match(words: list[str]) -> Any:
    """A match query, never a raw string: quotes in a raw one are parsed as a phrase query and fail."""
    from lancedb.query import MatchQuery

    return MatchQuery(" ".join(words), TERMS)
