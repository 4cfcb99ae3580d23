"""A vector table that is written, changed and asked all the while, without a catalog: for the tests of maintenance.

Rows are generated texts under the hashing embedder. Every `NEEDLE_EVERY`th one is a needle: never changed or deleted,
so each search for it must find it.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from vector_rows import row
from workers.embedding.hashing import DIMENSION, HashingEmbedder
from workers.stores.lance_schema import VectorRow
from workers.stores.scope import Scope
from workers.stores.space import Space
from workers.stores.vectors import VectorStore

SPACE = Space("hashing-v1", DIMENSION, 256, 32)
TENANTS = 8
SESSIONS = 40
WORDS = [f"word{number}" for number in range(4000)]
NEEDLE_EVERY = 50
LIMIT = 50
EMBEDDER = HashingEmbedder()


def rows(numbers: Sequence[int], revision: int = 0) -> list[VectorRow]:
    """Chunks with these numbers, of about 250 characters; another revision is another text under the same key."""
    texts = [text_of(number, revision) for number in numbers]
    return [
        row(
            number,
            text,
            vector_id=key_of(number),
            turn_key=f"turn{number}",
            tenant=tenant_of(number),
            session_id=session_of(number),
            vector=vector,
        )
        for number, text, vector in zip(numbers, texts, EMBEDDER.embed_passages(texts), strict=True)
    ]


def text_of(number: int, revision: int = 0) -> str:
    rng = random.Random(f"{number} {revision}")
    return f"needle{number}q revision{revision} " + " ".join(rng.choices(WORDS, k=30))


def key_of(number: int) -> str:
    return f"v{number:08}"


def tenant_of(number: int) -> str:
    return f"tenant{number % TENANTS}"


def session_of(number: int) -> str:
    return f"session{number % SESSIONS}"


def is_needle(number: int) -> bool:
    return number % NEEDLE_EVERY == 0


@dataclass
class Load:
    """The table's writer, and what must be in it."""

    store: VectorStore
    written: int = 0
    deleted: set[int] = field(default_factory=set)

    def append(self, count: int, batch: int) -> None:
        """Write the next rows in small batches."""
        for first in range(self.written, self.written + count, batch):
            numbers = range(first, min(first + batch, self.written + count))
            self.store.upsert(SPACE, rows(numbers))
        self.written += count

    def change(self, rng: random.Random, updates: int, deletes: int, batch: int) -> None:
        """Rewrite some rows that are there, and delete others."""
        there = [n for n in range(self.written) if not is_needle(n) and n not in self.deleted]
        chosen = rng.sample(there, updates + deletes)
        for at in range(0, updates, batch):
            self.store.upsert(SPACE, rows(sorted(chosen[at : min(at + batch, updates)]), revision=1))
        for at in range(updates, updates + deletes, batch):
            numbers = chosen[at : at + batch]
            self.store.delete_superseded(SPACE, [(f"turn{number}", None) for number in numbers])
            self.deleted.update(numbers)

    @property
    def keys(self) -> list[str]:
        """What the table must hold, sorted."""
        return [key_of(number) for number in range(self.written) if number not in self.deleted]


@dataclass
class Asked:
    """What a questioner has seen."""

    questions: int = 0
    missing: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    slowest_seconds: float = 0.0


@contextmanager
def asking(location: str, load: Load) -> Iterator[Asked]:
    """A thread asks for needles, by vector and by word, in a tenant and in a session of it, until the block ends."""
    asked, stop, store = Asked(), threading.Event(), VectorStore(location)
    rng = random.Random(5)

    def ask() -> None:
        while not stop.is_set():
            needle = rng.randrange(max(1, load.written) // NEEDLE_EVERY + 1) * NEEDLE_EVERY
            if needle >= load.written:
                continue
            session = rng.choice([(), (session_of(needle),)])
            scope = Scope(tenant_of(needle), sessions=session)
            vector: np.ndarray = EMBEDDER.embed_query(text_of(needle))[0]
            try:
                found = {
                    "dense": store.dense(SPACE, vector, scope, LIMIT),
                    "lexical": store.lexical(SPACE, f"needle{needle}q", scope, LIMIT),
                }
            except Exception as error:  # noqa: BLE001  # the test reports whatever it is
                asked.errors.append(str(error))
                continue
            asked.questions += 1
            asked.missing += [
                f"{needle} by {leg} in {scope}"
                for leg, candidates in found.items()
                if key_of(needle) not in {one.vector_id for one in candidates}
            ]

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield asked
    finally:
        stop.set()
        thread.join()


def disk_bytes(location: str | Path) -> int:
    """Bytes of every file under a folder."""
    return sum(path.stat().st_size for path in Path(location).rglob("*") if path.is_file())


def own_size(store: VectorStore, folder: Path) -> int:
    """What the table's rows and indexes take when they are written in one go, at `folder`."""
    fresh = VectorStore(str(folder))
    data = store._lance.read(SPACE, lambda table: table.to_arrow(), None)
    fresh._lance.write(SPACE, lambda table: table.add(data), create=True)
    for column, figures in store.indexes(SPACE).items():
        fresh.build_index(SPACE, column, figures.kind)
    fresh.drop_history(SPACE)
    return disk_bytes(folder)
