"""How well a space finds what it should: dense recall@10 over probe questions. Does I/O on both stores.

The questions are those that a person has given. Without any, known items: a part of a stored turn asks for that turn,
which says less about meaning and enough about a model that does not fit what is stored.
"""

from __future__ import annotations

import json
import re
from codecs import BOM_UTF8
from collections.abc import Callable, Iterable
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

from producers.errors import UsageError
from producers.events import MAX_ID_CHARS, MAX_TURN_INDEX
from producers.storable import storable
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
    line_of: dict[str, int] = {}
    try:
        lines = path.read_bytes().removeprefix(BOM_UTF8).split(b"\n")
    except OSError as error:
        raise UsageError(f"--probes {path}: {error.strerror or error}") from None
    for number, line in enumerate(lines, 1):
        try:
            one = _asked(number, line)
        except ValueError as error:
            raise UsageError(f"--probes {path}, line {number}: {error}") from None
        if one is None:
            continue
        first = line_of.setdefault(one.id, number)
        if first != number:
            raise UsageError(
                f"--probes {path}, line {number}: query_id {one.id!r} is that of line {first} as well; each question "
                "needs its own, or none"
            )
        asked[one.id] = one
    if len(asked) > MOST_PROBES:
        raise UsageError(f"--probes {path}: {len(asked):,} questions, over the limit of {MOST_PROBES:,}; give a sample")
    if not asked:
        raise UsageError(f"--probes {path}: no question with evidence")
    return list(asked.values())


def _asked(number: int, line: bytes) -> Asked | None:
    """None for a question without evidence, which says nothing about recall. Raises `ValueError` saying what is wrong.

    What the catalog cannot hold is refused here, before anything is changed.
    """
    try:
        text = line.decode()
    except UnicodeDecodeError:
        raise ValueError("not UTF-8 text") from None
    if not text.strip():
        return None
    try:
        row: dict[str, Any] = json.loads(text)
        tenant: Any = row.get("tenant", row.get("scope"))
        evidence = tuple((item["session_id"], item["turn_index"]) for item in row.get("evidence") or ())
        query, given_id = row["query"], row.get("query_id")
    except (ValueError, TypeError, AttributeError, KeyError, RecursionError):
        raise ValueError("not an object with query, tenant and evidence, a list of {session_id, turn_index}") from None
    texts = (tenant, query, *(session for session, _ in evidence))
    whole = all(isinstance(index, int) and not isinstance(index, bool) for _, index in evidence)
    if not all(isinstance(text, str) and text.strip() for text in texts) or not whole:
        raise ValueError("tenant (or scope), query and session_id are texts, turn_index a number")
    if not all(0 <= index <= MAX_TURN_INDEX for _, index in evidence):
        raise ValueError(f"turn_index is from 0 to {MAX_TURN_INDEX}, as in every turn that is stored")
    name = f"line {number}" if given_id is None else str(given_id)
    if len(name) > MAX_ID_CHARS:
        raise ValueError(f"query_id has {len(name):,} characters, over the limit of {MAX_ID_CHARS}")
    if any(storable(text) != text for text in (name, *texts)):
        raise ValueError("holds a NUL or a lone surrogate, which no store takes; replace it, for example with U+FFFD")
    return Asked(name, tenant, query, evidence) if evidence else None
