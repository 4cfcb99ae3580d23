"""Retention rules: which turns are kept for how long, by tenant and source. Pure.

One rule governs a turn, the most specific one that names it: tenant and source, then the tenant, then the source, then
neither. So a rule for one tenant replaces the general one for it, in every limit.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

ANY = "*"
"""Stands for every tenant, or for every source."""
MAX_ID_CHARS = 256
MAX_DAYS = 36_500
"""A century; the moment that many days ago is one that every store can hold."""
MAX_TURNS = 1_000_000_000
LIMITS = ("max_age_days", "max_turns", "ended_days")


class RetentionRule(BaseModel):
    """Limits for the turns of one tenant and source; a limit that is not given does not remove anything."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", allow_inf_nan=False)

    tenant: str = Field(ANY, min_length=1, max_length=MAX_ID_CHARS)
    source: str = Field(ANY, min_length=1, max_length=MAX_ID_CHARS)
    max_age_days: float | None = Field(None, gt=0, le=MAX_DAYS)
    """A turn goes when it was said longer ago; one without a time was said when it was accepted."""
    max_turns: int | None = Field(None, ge=1, le=MAX_TURNS)
    """Of a session's turns that the rule governs this many stay, those with the highest index."""
    ended_days: float | None = Field(None, gt=0, le=MAX_DAYS)
    """A session's turns go when the last one of any source was said longer ago."""

    @model_validator(mode="before")
    @classmethod
    def _known_fields(cls, values: Any) -> Any:
        for name in values if isinstance(values, dict) else ():
            if name not in cls.model_fields:
                near = difflib.get_close_matches(str(name), cls.model_fields, n=1)
                hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(cls.model_fields)}"
                raise ValueError(f"unknown field {name!r}; {hint}")
        return values

    @model_validator(mode="after")
    def _limits_something(self) -> RetentionRule:
        if all(getattr(self, name) is None for name in LIMITS):
            raise ValueError(f"it limits nothing: give {', '.join(LIMITS[:-1])} or {LIMITS[-1]}")
        return self

    @property
    def rank(self) -> int:
        """Of two rules that name a turn the one with the higher rank governs it."""
        return 2 * (self.tenant != ANY) + (self.source != ANY)

    def __str__(self) -> str:
        return f"tenant {self.tenant}, source {self.source}"


def check_distinct(rules: Sequence[RetentionRule]) -> None:
    """Raise `ValueError` naming two rules for the same turns."""
    seen: dict[tuple[str, str], int] = {}
    for number, rule in enumerate(rules, start=1):
        first = seen.setdefault((rule.tenant, rule.source), number)
        if first != number:
            raise ValueError(f"rules {first} and {number} are both for {rule}: put their limits into one")
