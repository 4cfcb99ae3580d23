"""The job `reconcile`: the vector tables hold what the catalog says, exactly; what differs is repaired. Does I/O.

    unfinished forgets → of each space: ranges of keys (missing, surplus, doubled) → indexes → sample → pending turns

The two stores are compared by key, a range at a time, while others write; so a difference is only a suspicion, and is
looked at again with the locks that decide it. Each repair can be repeated: what a killed run leaves is the next one's.
"""

from __future__ import annotations

import json
import math
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from producers.errors import EmbedderUnavailable, ModelError, NotReady, StoreDamaged
from producers.logs import get_logger
from workers.maintenance.forget import finish_forgets
from workers.maintenance.job import JobContext, Outcome
from workers.maintenance.recomputing import BATCH, Recomputing
from workers.stores.chunk_rows import KeyRange
from workers.stores.facts import facts_of, fingerprints
from workers.stores.lance_connection import WRITER_CACHE
from workers.stores.lance_schema import TERMS
from workers.stores.scope import Scope
from workers.stores.space import Space
from workers.stores.spaces import StoredSpace
from workers.stores.turn_writer import slices
from workers.stores.vector_repair import VectorRepair
from workers.stores.vectors import VectorStore

RANGE_KEYS = 50_000
"""Keys of each store in memory at once: about 20 MB."""
SAMPLE = 64
"""Stored vectors compared with fresh ones in a run; seconds with a model on a CPU."""
SAMPLE_PLACES = 16
DELETED_AT_ONCE = 1000
FACTS_AT_ONCE = 25_000
"""Rows of an older table that get their facts in one merge, while nobody writes to the catalog: about a second."""
KEY_SPACE = 1 << 32
"""Vector ids are hex digits of a hash, so their first eight are spread evenly."""

log = get_logger(__name__)


def reconcile(context: JobContext) -> Outcome:
    """The job, over every stored space."""
    forgets = finish_forgets(context)
    problems = [forgets.problem] if forgets.problem else []
    found: Counter[str] = Counter()
    repair = Repair(context)
    for stored in context.catalog.spaces.written():
        found += repair.space(stored)
        problems += repair.problems
    found["marked"] = repair.mark_pending()
    did = [forgets.did] if forgets.did else []
    did += [f"{what} {found[name]:,}" for name, what in DID.items() if found[name]]
    before = {name: found[name] for name in ("chunks", "rows", "missing", "surplus", "doubled")}
    after = {name: found[name] for name in DID} | repair.sampled
    return Outcome("; ".join(did) or None, before, after, "; ".join(problems) or None)


DID = {
    "discarded": "damaged tables discarded:",
    "embedded": "vectors computed again:",
    "deleted": "rows deleted that the catalog does not have:",
    "undoubled": "rows deleted that were there twice:",
    "described": "rows that recall can now filter by metadata:",
    "reindexed": "tables indexed anew:",
    "differing": "vectors that differed from fresh ones and were computed again:",
    "marked": "turns marked as stored after an interruption:",
}


class Repair:
    """One run over the spaces, one after the other."""

    def __init__(self, context: JobContext) -> None:
        self._context = context
        self._catalog = context.catalog
        self._vectors = VectorStore(context.settings.vectors_location, WRITER_CACHE)
        self._repair = VectorRepair(context.settings.vectors_location)
        self.problems: list[str] = []
        """Of the space that was looked at last."""
        self._forgotten = False
        """Whether the space held turns that the catalog does not know any more."""
        self.sampled: dict[str, Any] = {}
        """How a sample of the active space's vectors agrees with fresh ones."""

    def space(self, stored: StoredSpace) -> Counter[str]:
        """Compare and repair one space; returns what was found and done. Raises `StoreUnavailable`."""
        self.problems = []
        self._forgotten = False
        try:
            return self._compare(stored)
        except StoreDamaged as error:
            log.warning("vector_table_damaged", space=stored.space.id, reason=str(error))
            discarded = self._discard_if_damaged(stored.space)
        return self._compare(stored) + Counter(discarded=discarded)

    def _compare(self, stored: StoredSpace) -> Counter[str]:
        space = stored.space
        fresh = Recomputing(self._catalog, self._vectors, stored, self._context.settings)
        found = Counter(chunks=self._catalog.chunk_rows.count(space), rows=self._vectors.count(space) or 0)
        ranges = list(key_ranges(max(found.values())))
        self._repair.add_columns(space)
        try:
            for number, keys in enumerate(ranges, start=1):
                found += self._range(space, keys, fresh)
                log.info("reconciling", space=space.id, ranges=f"{number}/{len(ranges)}", embedded=found["embedded"])
        except (ModelError, EmbedderUnavailable) as error:
            self.problems.append(f"vectors could not be computed, and the next run goes on: {error}")
        if self._forgotten:
            self._erase_deleted(space)
        found["reindexed"] = self._keep_searchable(space)
        if stored.state == "active" or fresh.loaded:
            found["differing"] = self._sample(fresh)
        if fresh.refused:
            self.problems.append(f"{fresh.refused:,} chunks stay without a vector: their model gives none for them")
        return found

    def mark_pending(self) -> int:
        """Mark turns as indexed that an interrupted write left pending, where all their vectors are there."""
        written = self._catalog.spaces.written()
        spaces = {one.space.id: one.space for one in written}
        active = {one.space.id for one in written if one.state == "active"}
        marked = 0
        for page in self._catalog.chunk_rows.pending():
            there: set[str] = set()
            for space_id, space in spaces.items():
                ids = [key for found in page.values() for one, key in found if one == space_id]
                there |= self._repair.present(space, ids) if ids else set()
            whole = []
            for turn, found in page.items():
                wanted = [(one, key) for one, key in found if one in spaces]
                if active & {one for one, _ in wanted} and all(key in there for _, key in wanted):
                    whole.append(turn)
            marked += len(whole) - len(self._catalog.mark_indexed(whole))
        return marked

    def _range(self, space: Space, keys: KeyRange, fresh: Recomputing) -> Counter[str]:
        wanted = self._catalog.chunk_rows.keys(space, keys)
        stored = self._repair.keys(space, keys)
        missing = self._still_missing(space, sorted(wanted.keys() - stored.ids))
        surplus = sorted(stored.ids - wanted.keys())
        found = Counter(missing=len(missing), surplus=len(surplus), doubled=len(stored.doubled))
        for ids in slices(surplus, DELETED_AT_ONCE):
            self._go_on()
            found["deleted"] += self._delete_surplus(space, ids)
        if stored.doubled:
            with self._catalog.locks.maintaining(), self._catalog.locks.erasing():
                found["undoubled"] = self._repair.delete_doubled(space, sorted(stored.doubled))
        for ids in slices(self._repair.without_facts(space, keys), FACTS_AT_ONCE):
            self._go_on()
            found["described"] += self._describe(space, ids)
        for ids in slices(missing, BATCH):
            self._go_on()
            found["embedded"] += fresh.write(ids)
        return found

    def _still_missing(self, space: Space, ids: Sequence[str]) -> list[str]:
        """Those of the ids that no write which had begun has brought by now."""
        if not ids:
            return []
        with self._catalog.locks.erasing():  # every write that had begun has ended
            pass
        there: set[str] = set()
        for some in slices(ids, DELETED_AT_ONCE):
            there |= self._repair.present(space, some)
        return [key for key in ids if key not in there]

    def _delete_surplus(self, space: Space, ids: Sequence[str]) -> int:
        # Alone: whoever fills a new space writes vectors first, and their chunks then.
        with self._catalog.locks.erasing(), self._catalog.chunk_rows.unchanging(space, ids) as wanted:
            surplus = [key for key in ids if key not in wanted]
            turns = self._repair.turn_keys(space, surplus)
            self._forgotten |= len(self._catalog.known(list(turns))) < len(turns)
            self._repair.delete(space, surplus)
        return len(surplus)

    def _describe(self, space: Space, ids: Sequence[str]) -> int:
        """Write what the turns' metadata says into these rows; returns how many there are."""
        locks = self._catalog.locks
        with locks.maintaining(), locks.publishing(), self._catalog.chunk_rows.unchanging(space, ids) as wanted:
            said = self._catalog.chunk_rows.metadata(sorted(wanted))
            facts = {key: fingerprints(facts_of(json.loads(metadata))) for key, metadata in said}
            self._repair.write_facts(space, facts)
        return len(facts)

    def _erase_deleted(self, space: Space) -> None:
        """Leave no byte of the deleted rows: an older copy that was put back holds what was forgotten since."""
        with self._catalog.locks.maintaining():
            with self._catalog.locks.erasing():
                self._vectors.erase_deleted(space)
            self._rebuild_indexes(space)
            with self._catalog.locks.erasing():
                self._vectors.drop_history(space)

    def _discard_if_damaged(self, space: Space) -> int:
        """Drop a table that cannot be read, 1 if so; where only its indexes are broken they are built anew."""
        with self._catalog.locks.maintaining(), self._catalog.locks.erasing():
            try:
                self._rebuild_indexes(space)  # LanceDB seldom says which file it was
                for keys in key_ranges(self._vectors.count(space) or 0):
                    self._repair.keys(space, keys)
                return 0
            except StoreDamaged:
                self._repair.discard(space)
                return 1

    def _keep_searchable(self, space: Space) -> int:
        """Build the full-text index if it is not there, and every index anew if a search fails; 1 if so."""
        if not self._vectors.count(space):
            return 0
        if TERMS not in self._vectors.indexed_columns(space):
            with self._catalog.locks.maintaining():
                self._vectors.build_index(space, TERMS, "full-text")
            return 1
        try:
            self._vectors.lexical(space, "word", Scope("nobody"), 1)
            self._vectors.dense(space, np.eye(1, space.dimension, dtype=np.float32)[0], Scope("nobody"), 1)
            return 0
        except StoreDamaged as error:
            log.warning("vector_index_damaged", space=space.id, reason=str(error))
            with self._catalog.locks.maintaining():
                self._rebuild_indexes(space)
            return 1

    def _rebuild_indexes(self, space: Space) -> None:
        self._vectors.rebuild_indexes(space, fine=self._catalog.spaces.search(space).fine)

    def _sample(self, fresh: Recomputing) -> int:
        """Compare a sample of stored vectors with fresh ones, and all if one is wrong; returns how many differed."""
        ids: dict[str, str] = {}
        for _ in range(SAMPLE_PLACES):
            low = f"{random.randrange(KEY_SPACE):08x}"
            ids |= self._catalog.chunk_rows.from_key(fresh.stored.space, low, SAMPLE // SAMPLE_PLACES)
        try:
            compared = fresh.compare(list(ids))
        except (ModelError, EmbedderUnavailable) as error:  # nothing is known to be wrong
            log.warning("sample_not_compared", space=fresh.stored.space.id, reason=str(error))
            self.sampled |= {"sampled": 0}
            return 0
        self.sampled |= {"sampled": compared.vectors, "lowest_cosine": round(compared.lowest, 4)}
        return compared.differing + (self._compare_all(fresh) if compared.differing else 0)

    def _compare_all(self, fresh: Recomputing) -> int:
        """Where a sample has a wrong vector there are others: each is compared. Takes as long as embedding anew."""
        differing, last = 0, ""
        while ids := self._catalog.chunk_rows.from_key(fresh.stored.space, last, BATCH):
            self._go_on()
            differing += fresh.compare(list(ids)).differing
            last = max(ids) + "0"  # the next possible one
            log.info("comparing_vectors", space=fresh.stored.space.id, upto=last[:8], differing=differing)
        return differing

    def _go_on(self) -> None:
        """Raises `NotReady` when another run may have begun."""
        if not self._context.lease.held:
            raise NotReady("job reconcile: its lease was lost, so another run may be at it; that one goes on")


def key_ranges(keys: int) -> Iterator[KeyRange]:
    """Ranges that together hold every key and about `RANGE_KEYS` each, when there are `keys` of them. Pure."""
    count = max(1, math.ceil(keys / RANGE_KEYS))
    bounds = [f"{number * KEY_SPACE // count:08x}" for number in range(1, count)]
    for low, high in zip([None, *bounds], [*bounds, None], strict=True):
        yield KeyRange(low, high)
