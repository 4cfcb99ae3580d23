"""What recall answers: the hits, the block of context, and what made the answer poorer. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any

from producers.events import from_utc_microseconds
from query.around import Neighbour
from query.candidates import Pool
from query.ranking import Ranked
from query.why import Why
from workers.stores.catalog import StoredChunk


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
    confidence: float | None
    """0 to 1, how sure it is that the turn answers; comparable between answers. None: no model says."""
    vector_id: str
    also: tuple[str, ...] = ()
    """SESSION:TURN of the turns that say the same, for which it stands; best first."""
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
    why: list[Why] = field(default_factory=list)
    """What became of the turn that the question asked about."""

    def as_json(self) -> dict[str, Any]:
        """The answer for programs; times as ISO 8601."""
        result = asdict(self)
        for hit in result["hits"]:
            hit["created_at"] = hit["created_at"].isoformat() if hit["created_at"] else None
            if hit["explain"] is None:
                del hit["explain"]
        result["around"] = [turn.as_json() for turn in self.around]
        if not self.why:
            del result["why"]
        return result


def hit_of(pool: Pool, ranked: Ranked, also: Sequence[Ranked], sure: float | None, *, explain: bool) -> Hit:
    """A hit from its place in the ranking."""
    chunk = pool.chunks[ranked.id]
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
        confidence=None if sure is None else round(sure, 4),
        vector_id=chunk.vector_id,
        also=tuple(place_name(pool.chunks[one.id]) for one in also),
        explain={name: asdict(part) for name, part in ranked.parts.items()} if explain else None,
    )


def place_name(chunk: StoredChunk) -> str:
    """SESSION:TURN."""
    return f"{chunk.turn.session_id}:{chunk.turn_index}"
