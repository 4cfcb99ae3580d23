"""What a maintenance job is given and what it answers. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import redis

from producers.settings import Settings
from workers.maintenance.lease import JobLease
from workers.stores.catalog import Catalog


@dataclass(frozen=True)
class JobContext:
    """A run's surroundings. The job is nobody else's while it goes on; a long one asks `lease.held` before each step
    that another run must not repeat."""

    settings: Settings
    client: redis.Redis
    catalog: Catalog
    lease: JobLease


@dataclass(frozen=True)
class Outcome:
    """What a run came to."""

    did: str | None
    """One line for the history; None: nothing was worth doing."""
    before: Mapping[str, Any] = field(default_factory=dict)
    after: Mapping[str, Any] = field(default_factory=dict)
    """Figures, for JSON."""
    problem: str | None = None
    """What is left undone and why; the run then counts as failed."""


Job = Callable[[JobContext], Outcome]
