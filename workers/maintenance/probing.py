"""How well a space finds what it should: dense recall@10 over probe questions. Does I/O on both stores.

The questions are those that a person has given. Without any, known items: a part of a stored turn asks for that turn,
which says less about meaning and enough about a model that does not fit what is stored.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

from producers.errors import UsageError
from workers.embedding.port import Embedder
from workers.stores.catalog import Catalog
from workers.stores.probes import Asked, Probe
from workers.stores.scope import Scope
from workers.stores.space import Space
from workers.stores.vectors import VectorStore

RANKS = 10
CHUNKS_PER_TURN = 4
"""As in recall: a long turn has many chunks and counts once."""
DRAWN = 200
"""Known items drawn where no questions were given; their recall is told to about .03."""
MIN_CHARS = 40
"""A shorter turn says what others say too."""
PART_CHARS = 60
MOST_PROBES = 2_000

Source = Literal["given", "drawn"]


def probes_of(catalog: Catalog) -> tuple[list[Probe], Source]:
    """The questions to compare by, and where they come from."""
    given = catalog.probes.all()
    if given:
        return given, "given"
    sample = catalog.probes.sample(DRAWN, MIN_CHARS)
    return [Probe(key, tenant, part_of(content), frozenset({key})) for key, tenant, content in sample], "drawn"


def part_of(content: str) -> str:
    """A part from the middle of a text, of whole words where it has any. Pure."""
    start = len(content) // 3
    part = content[start : start + PART_CHARS]
    words = re.search(r"\s(.*\S)\s", part, re.DOTALL)
    return (words[1] if words and len(words[1]) >= PART_CHARS // 2 else part).strip() or content.strip()[:PART_CHARS]


def dense_recall(
    catalog: Catalog,
    vectors: VectorStore,
    embedder: Embedder,
    space: Space,
    probes: Iterable[Probe],
    pause: Callable[[], None] = lambda: None,
) -> float:
    """Mean share of each question's evidence among its first 10 turns by cosine, within its tenant; 1.0 for none."""
    found = []
    how = catalog.spaces.search(space)
    for probe in probes:
        pause()
        scope = Scope(probe.tenant)
        vector = embedder.embed_query(probe.query)[0]
        ids = [one.vector_id for one in vectors.dense(space, vector, scope, RANKS * CHUNKS_PER_TURN, how)]
        chunks = catalog.hydrate(ids, scope, space)
        ranked = list(dict.fromkeys(chunks[key].turn_key for key in ids if key in chunks))[:RANKS]
        found.append(len(probe.evidence.intersection(ranked)) / len(probe.evidence))
    return fmean(found) if found else 1.0


def read_probes(path: Path) -> list[Asked]:
    """Labelled questions: JSON lines {query_id?, query, tenant, evidence: [{session_id, turn_index}]}.

    `scope` is taken for the tenant where that is missing, as in labelled sets. Raises `UsageError` naming the line.
    """
    asked: dict[str, Asked] = {}
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--probes {path}: {getattr(error, 'strerror', None) or 'not UTF-8 text'}") from None
    for number, line in enumerate(lines, 1):
        if line.strip():
            one = _asked(path, number, line)
            if one is not None:
                asked[one.id] = one
    if len(asked) > MOST_PROBES:
        raise UsageError(f"--probes {path}: {len(asked):,} questions, over the limit of {MOST_PROBES:,}; give a sample")
    if not asked:
        raise UsageError(f"--probes {path}: no question with evidence")
    return list(asked.values())


def _asked(path: Path, number: int, line: str) -> Asked | None:
    """None for a question without evidence, which says nothing about recall."""
    try:
        row: dict[str, Any] = json.loads(line)
        tenant: Any = row.get("tenant", row.get("scope"))
        evidence = tuple((item["session_id"], item["turn_index"]) for item in row.get("evidence") or ())
        query = row["query"]
    except (ValueError, TypeError, AttributeError, KeyError):
        raise UsageError(
            f"--probes {path}, line {number}: not an object with query, tenant and evidence, a list of "
            "{session_id, turn_index}"
        ) from None
    texts = (tenant, query, *(session for session, _ in evidence))
    whole = all(isinstance(index, int) and not isinstance(index, bool) for _, index in evidence)
    if not all(isinstance(text, str) and text.strip() for text in texts) or not whole:
        raise UsageError(
            f"--probes {path}, line {number}: tenant (or scope), query and session_id are texts, turn_index a number"
        )
    return Asked(str(row.get("query_id", number))[:256], tenant, query, evidence) if evidence else None
