"""How a space's approximate vector index is asked, and what is known of it. Pure; the catalog keeps it as JSON."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields

REFINE = 4
"""An approximate index answers with this many times the limit, whose exact cosine then decides."""


@dataclass(frozen=True)
class IndexSearch:
    """Parameters of a search, all without effect where there is no index; and the last measurement of the index."""

    refine: int = REFINE
    """The index names this many times the limit; the stored vectors then decide among them."""
    ef: int | None = None
    """Candidates that a search in a graph keeps, at least; None: half as many again as it is to name."""
    nprobes: int | None = None
    """Partitions that are searched; None: LanceDB's own number."""
    fine: bool = False
    """Whether the index is, and will be, built with more care: it did not find enough without."""
    trained_rows: int | None = None
    """Rows when the index was last built; None: not known."""
    checked_rows: int | None = None
    """Rows when its recall was last measured."""
    checked_at_us: int | None = None
    """When that was, microseconds since 1970."""
    recall: float | None = None
    """Recall@50 against an exact scan, as it was then."""

    def as_text(self) -> str:
        """JSON, as the catalog keeps it."""
        return json.dumps(asdict(self))

    @classmethod
    def from_text(cls, text: str | None) -> IndexSearch:
        """What `as_text` wrote, also by another version; the defaults for None."""
        known = {field.name for field in fields(cls)}
        return cls(**{name: value for name, value in json.loads(text or "{}").items() if name in known})


DEFAULT_SEARCH = IndexSearch()
