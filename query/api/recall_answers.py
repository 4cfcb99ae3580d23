"""What `POST /v1/recall` answers, for the service's OpenAPI description; later versions may add fields. Pure."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict

from query.api.answers import StoredTurnAnswer
from query.api.requests import TURN_EXAMPLE
from query.why import Verdict


class HitAnswer(StoredTurnAnswer):
    """One recalled turn, shown by its best chunk: `content` is what was found of it, from `span[0]` to `span[1]`."""

    span: list[int]
    chunk_index: int
    total_chunks: int
    kind: str
    language: str | None
    score: float
    confidence: float | None
    vector_id: str
    also: list[str]
    """SESSION:TURN of those that say the same, for which it stands."""
    explain: dict[str, Any] | None = None
    """How it got its score; only when that was asked for."""


class NeighbourAnswer(BaseModel):
    """A turn beside a hit, or its beginning."""

    session_id: str
    turn_index: int
    role: str
    speaker: str | None
    created_at: str | None
    content: str
    chars: int
    """Length of the whole turn in characters."""


class WhyAnswer(BaseModel):
    """What became of the turn that `why` names."""

    session_id: str
    turn_index: int
    role: str | None
    verdict: Verdict
    reason: str
    rank: int | None
    """Among the `of` that came as far as it did; 1 is the best."""
    of: int | None
    parts: dict[str, Any] | None


class RecallAnswer(BaseModel):
    """What recall found, best first, and how."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "query": "which port does the proxy use?",
                    "hits": [
                        TURN_EXAMPLE
                        | {"speaker": None, "agent_id": None, "source": "push", "metadata": {}, "created_at": None}
                        | {"span": [0, 48], "chunk_index": 0, "total_chunks": 1, "kind": "prose", "language": None}
                        | {"score": 0.81, "confidence": 0.62, "vector_id": "5a0c…", "also": []}
                    ],
                    "context": "assistant, time unknown, session deploy-7 turn 1\nThe proxy listens on 8443 …",
                    "embedder": "all-MiniLM-L6-v2+multilingual-e5-small",
                    "reranker": None,
                    "degraded": [],
                    "timings_ms": {"candidates": 12.1, "total": 40.2},
                }
            ]
        }
    )

    query: str
    hits: list[HitAnswer]
    context: str
    """A block for the prompt."""
    around: list[NeighbourAnswer]
    """The turns beside the hits that the block shows too; none without `neighbours`."""
    embedder: str
    reranker: str | None
    degraded: list[str]
    """What made the answer poorer than it could be."""
    timings_ms: dict[str, float]
    why: list[WhyAnswer] | None = None
    """Only when that was asked for; one for each role that speaks at the place."""
