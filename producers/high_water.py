"""When an append waits, because what is accepted already must be stored first. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from producers.settings import Settings

MEMORY_SHARE = 0.8
"""Of Redis' maxmemory, what may be in use: with the rest gone no job could be queued that would drain it. Producers
that look at the same moment each add up to one round trip (`PIPELINE_BYTES`) more."""


def over_high_water(length: int, memory: Mapping[str, Any], settings: Settings) -> str | None:
    """Why an append waits, given a stream's length and Redis' INFO memory; None when it does not."""
    if length >= settings.high_water:
        return f"{length:,} entries wait, high_water is {settings.high_water:,}"
    used, limit = int(memory.get("used_memory", 0)), int(memory.get("maxmemory", 0))
    if used >= settings.high_water_bytes:
        return f"Redis holds {used:,} bytes, high_water_bytes is {settings.high_water_bytes:,}"
    if limit and used >= limit * MEMORY_SHARE:
        return f"Redis holds {used:,} bytes, {MEMORY_SHARE:.0%} or more of its maxmemory {limit:,}"
    return None
