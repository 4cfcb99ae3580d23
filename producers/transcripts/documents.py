"""Files that are one JSON document and small in practice: read whole, up to a bound. Does I/O."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from producers.transcripts.port import Bad, Item, LeftOut, Mark, Said, State, Unreadable

MAX_DOCUMENT_BYTES = 512 << 20
"""Parsed, a document takes some times its size in memory."""
MARK_EVERY = 200


def document(path: Path) -> Any:
    """The parsed document. Raises `Unreadable` where it is too large or no JSON."""
    with path.open("rb") as file:
        data = file.read(MAX_DOCUMENT_BYTES + 1)
    if len(data) > MAX_DOCUMENT_BYTES:
        raise Unreadable(f"larger than {MAX_DOCUMENT_BYTES >> 20} MiB; split it into several files")
    try:
        return json.loads(data.decode("utf-8-sig", "replace"))
    except (ValueError, RecursionError):
        raise Unreadable("not a valid JSON document; it may be cut short") from None


def marked(items: Iterable[Said | Bad | LeftOut], path: Path, state: State | None) -> Iterator[Item]:
    """The items behind `state`, with marks.

    A document is written anew as a whole, so that any place in it may be new: one of another size is read from its
    start, and what was there before is known by its origin.
    """
    size = path.stat().st_size
    passed = state.get("items", 0) if state and state.get("bytes") == size else 0
    count = 0
    for count, item in enumerate(items, 1):
        if count <= passed:
            continue
        yield item
        if count % MARK_EVERY == 0:
            yield Mark({"bytes": size, "items": count}, 0.5)
    yield Mark({"bytes": size, "items": count}, 1.0)
