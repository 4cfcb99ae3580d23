"""Compares what was accepted with what is stored, turn by turn and chunk by chunk. Does I/O: reads both stores."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass

import sqlalchemy as sa
from known_turns import known_turn

from producers.events import TurnEvent
from producers.settings import Settings
from query.question import Question
from query.recall import Recaller
from workers.chunking import Chunker
from workers.embedding.registry import load_embedder
from workers.runtime import space_of
from workers.stores.catalog import Catalog
from workers.stores.engine import open_engine
from workers.stores.scope import Scope
from workers.stores.space import vector_id
from workers.stores.tables import INDEXED, turns
from workers.stores.vectors import VectorStore

WIDE = 50
"""Hits asked for: whether a turn is found is the matter here, not its rank, and 64 hashed dimensions collide."""
COLUMNS = ("point", "process", "runs", "accepted", "stored", "duplicates", "lost")
WORD_COLUMNS = 2
"""Of the columns, those that hold words; the others hold figures."""


@dataclass(frozen=True)
class Tally:
    """What became of some turns."""

    point: str
    process: str
    runs: int
    accepted: int
    stored: int
    """Turns that are in the catalog with their content, and in LanceDB with exactly their chunks, each once."""
    duplicates: int
    """Rows too many, in either store."""

    @property
    def lost(self) -> int:
        return self.accepted - self.stored

    @property
    def exact(self) -> bool:
        return self.lost == 0 and self.duplicates == 0


class Stored:
    """Both stores as they are now, against the known turns that should be there."""

    def __init__(self, settings: Settings, revisions: Mapping[int, int] | None = None) -> None:
        """`revisions`: by number, the revision that was accepted last, where it is not 0."""
        self._settings = settings
        self._revisions = revisions or {}
        embedder = load_embedder(settings.embedder, settings)
        self._space = space_of(embedder, settings)
        self._chunker = Chunker(embedder.token_counter(), self._space.chunk_tokens, self._space.chunk_overlap)
        engine = open_engine(settings.catalog_location, create=False)
        with engine.connect() as connection:
            rows = connection.execute(sa.select(turns.c.turn_key, turns.c.content, turns.c.state)).all()
        engine.dispose()
        self._contents = {row.turn_key: row.content for row in rows}
        self._pending = {row.turn_key for row in rows if row.state != INDEXED}
        catalog = Catalog.open(settings.catalog_location)
        self._chunk_ids = Counter(catalog.vector_ids(self._space))
        catalog.close()
        self._vector_ids = Counter(VectorStore(settings.vectors_location).keys(self._space))

    def tally(self, numbers: Iterable[int], *, point: str = "all", process: str = "all", runs: int = 1) -> Tally:
        """Count the known turns with these numbers."""
        accepted = stored = duplicates = 0
        for number in numbers:
            accepted += 1
            event = self._turn(number)
            ids = self._ids_of(number)
            in_catalog = self._contents.get(event.key) == event.content and event.key not in self._pending
            in_both = all(self._chunk_ids[one] and self._vector_ids[one] for one in ids)
            stored += in_catalog and in_both
            duplicates += sum(max(0, self._vector_ids[one] - 1) + max(0, self._chunk_ids[one] - 1) for one in ids)
        return Tally(point, process, runs, accepted, stored, duplicates)

    def strangers(self, numbers: Sequence[int]) -> tuple[int, int, int]:
        """(turns, chunks, vectors) that are stored and do not come from the known turns with these numbers."""
        keys = {known_turn(number).key for number in numbers}
        ids = {one for number in numbers for one in self._ids_of(number)}
        return len(self._contents.keys() - keys), len(self._chunk_ids.keys() - ids), len(self._vector_ids.keys() - ids)

    def not_recalled(self, numbers: Iterable[int]) -> list[int]:
        """Those of the turns with these numbers that recall does not find."""
        missing = []
        with closing(Recaller.open(self._settings)) as recaller:
            for number in numbers:
                event = known_turn(number)
                answer = recaller.recall(Question(event.content, Scope(event.tenant), k=WIDE, wide=WIDE))
                if event.turn_index not in [hit.turn_index for hit in answer.hits]:
                    missing.append(number)
        return missing

    def _turn(self, number: int) -> TurnEvent:
        return known_turn(number, self._revisions.get(number, 0))

    def _ids_of(self, number: int) -> list[str]:
        event = self._turn(number)
        chunks = self._chunker.chunk(event.content)
        return [vector_id(self._space.id, event.key, event.content_hash, chunk.index) for chunk in chunks]


def table(tallies: Sequence[Tally]) -> str:
    """The tallies as aligned columns, with a line for all of them."""
    rows = [(t.point, t.process, *map(str, (t.runs, t.accepted, t.stored, t.duplicates, t.lost))) for t in tallies]
    sums = [sum(getattr(t, name) for t in tallies) for name in COLUMNS[WORD_COLUMNS:]]
    rows = [COLUMNS, *rows, ("all", "", *map(str, sums))]
    widths = [max(len(row[at]) for row in rows) for at in range(len(COLUMNS))]
    return "\n".join(_aligned(row, widths) for row in rows)


def _aligned(row: Sequence[str], widths: Sequence[int]) -> str:
    words = [row[at].ljust(widths[at]) for at in range(WORD_COLUMNS)]
    figures = [row[at].rjust(widths[at]) for at in range(WORD_COLUMNS, len(row))]
    return "  ".join(words + figures)
