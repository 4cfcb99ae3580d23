"""From a turn and its chunks to the rows of both stores. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from producers.events import TurnEvent, utc_microseconds
from workers.chunking import Chunk
from workers.stores.facts import facts_of, fingerprints
from workers.stores.lance_schema import VectorRow
from workers.stores.space import Space, vector_id
from workers.stores.turn_writer import ChunkSpan


def chunk_spans(space: Space, event: TurnEvent, chunks: Sequence[Chunk]) -> tuple[ChunkSpan, ...]:
    """The chunks as the catalog keeps them."""
    return tuple(
        ChunkSpan(
            space_id=space.id,
            vector_id=vector_id(space.id, event.key, event.content_hash, chunk.index),
            index=chunk.index,
            total=chunk.total,
            start=chunk.start,
            end=chunk.end,
            kind=chunk.kind,
            language=chunk.language,
        )
        for chunk in chunks
    )


def vector_rows(
    space: Space, event: TurnEvent, entry_order: str, chunks: Sequence[Chunk], vectors: np.ndarray
) -> list[VectorRow]:
    """The chunks as the vector store keeps them; `vectors` has the shape (chunks, dimension)."""
    facts = fingerprints(facts_of(event.metadata))
    return [
        VectorRow(
            vector_id=vector_id(space.id, event.key, event.content_hash, chunk.index),
            turn_key=event.key,
            content_hash=event.content_hash,
            entry_order=entry_order,
            tenant=event.tenant,
            agent_id=event.agent_id,
            session_id=event.session_id,
            turn_index=event.turn_index,
            role=event.role,
            source=event.source,
            tags=event.tags,
            created_at_us=utc_microseconds(event.created_at),
            text=chunk.text,
            kind=chunk.kind,
            language=chunk.language,
            vector=vector,
            facts=facts,
        )
        for chunk, vector in zip(chunks, vectors, strict=True)
    ]
