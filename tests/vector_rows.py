"""Rows for the vector store's suites."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import numpy as np

from workers.order import order_at
from workers.stores.lance_schema import VectorRow
from workers.stores.space import Space
from workers.stores.vectors import Candidate

SPACE = Space("test", 8, 64, 8)
NOW = datetime(2026, 11, 29, tzinfo=UTC)


def unit_vector(seed: int) -> np.ndarray:
    vector = np.random.default_rng(seed).standard_normal(SPACE.dimension).astype(np.float32)
    return vector / np.linalg.norm(vector)


def row(number: int, text: str = "hello world", **fields: Any) -> VectorRow:
    """A row of tenant `t`, each field another's where `fields` says so."""
    plain: dict[str, Any] = {
        "vector_id": f"v{number}",
        "turn_key": f"k{number}",
        "content_hash": f"h{number}",
        "entry_order": order_at(number),
        "tenant": "t",
        "agent_id": None,
        "session_id": "s",
        "turn_index": number,
        "role": "user",
        "source": "push",
        "tags": (),
        "created_at_us": None,
        "kind": "prose",
        "language": None,
        "text": text,
        "facts": (),
    }
    if "vector" not in fields:
        plain["vector"] = unit_vector(number)
    return VectorRow(**{**plain, **fields})


def ids(found: list[Candidate]) -> list[str]:
    return [candidate.vector_id for candidate in found]
