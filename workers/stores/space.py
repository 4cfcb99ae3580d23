"""An embedding space: the identity of a model's vectors. Pure.

Vectors of two spaces never meet: another model, dimension or chunking is another space with a table of its own.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from functools import cached_property

MAX_SLUG_CHARS = 40


@dataclass(frozen=True)
class Space:
    """What must be equal for two vectors to be comparable and two chunkings to be the same."""

    embedder: str
    dimension: int
    chunk_tokens: int
    chunk_overlap: int

    @cached_property
    def id(self) -> str:
        """A readable, unique name that is safe as a table's: the embedder's slug and a digest of all fields."""
        fields = json.dumps([self.embedder, self.dimension, self.chunk_tokens, self.chunk_overlap])
        slug = re.sub(r"[^a-z0-9]+", "_", self.embedder.lower()).strip("_")[-MAX_SLUG_CHARS:]
        return f"{slug}_{hashlib.sha256(fields.encode()).hexdigest()[:12]}"


def vector_id(space_id: str, turn_key: str, content_hash: str, chunk_index: int) -> str:
    """32 hex digits; derived from what it stands for, so that every step of the write can be repeated."""
    text = f"{space_id}/{turn_key}/{content_hash}/{chunk_index}"
    return hashlib.sha256(text.encode()).hexdigest()[:32]
