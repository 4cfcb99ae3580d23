"""What a search of a LanceDB table is asked and gives back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workers.stores.index_search import IndexSearch
from workers.stores.lance_indexes import with_search
from workers.stores.lance_schema import KEY, TERMS, TURN, VECTOR


@dataclass(frozen=True)
class Candidate:
    """A chunk that a search found; higher scores are better, on the scale of the search that gave it."""

    vector_id: str
    turn_key: str
    score: float


def candidates(found: Any, scores: NDArray[np.float32]) -> list[Candidate]:
    return list(map(Candidate, found[KEY].to_pylist(), found[TURN].to_pylist(), scores.tolist()))


def steady(found: list[Candidate]) -> list[Candidate]:
    """Best first, ties by id: LanceDB names equals in the order in which its threads come to them."""
    return sorted(found, key=lambda one: (-one.score, one.vector_id))


def nearest(
    table: Any, vector: NDArray[np.float32], where: str, count: int, how: IndexSearch | None
) -> list[Candidate]:
    """The rows nearest to the vector; `how` the index is asked, None to compare every row."""
    query = table.search(vector, vector_column_name=VECTOR).distance_type("cosine")
    query = query.bypass_vector_index() if how is None else with_search(query, how, count)
    found = query.where(where, prefilter=True).select([KEY, TURN, "_distance"]).limit(count).to_arrow()
    return candidates(found, 1.0 - found["_distance"].to_numpy())


def sharing(table: Any, words: list[str], where: str, count: int) -> list[Candidate]:
    """The rows that share the words, by BM25."""
    query = table.search(match(words), query_type="fts")
    found = query.where(where, prefilter=True).select([KEY, TURN, "_score"]).limit(count).to_arrow()
    return candidates(found, found["_score"].to_numpy())


def match(words: list[str]) -> Any:
    """A match query, never a raw string: quotes in a raw one are parsed as a phrase query and fail."""
    from lancedb.query import MatchQuery

    return MatchQuery(" ".join(words), TERMS)
