"""Erasure: what is hidden already is erased from everything that was written, and that is proven. Does I/O.

    spool → streams, dead letters → vectors → indexes → old files, catalog → Redis' files → proof

A tombstone hides turns and is the record of what is to be done: until it is marked as erased each step is repeated from
the start by whoever comes next, so a kill at any moment only delays the end. Everything that holds turns must be erased
here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import redis

from producers.connection import mapped_errors
from producers.errors import RetryableError, StoreUnavailable, StreamUnavailable
from producers.settings import Settings
from producers.spool import erase_spooled, spooled_events
from producers.spool_file import Record
from workers import temporary
from workers.maintenance import erasure_proof as proof
from workers.maintenance import redis_erasure
from workers.order import order_at
from workers.stores.catalog import Catalog
from workers.stores.selection import Facts
from workers.stores.space import Space
from workers.stores.tombstones import Forget
from workers.stores.vectors import VectorStore

SEARCHES = 3
"""What others say meanwhile can hold a piece of what was forgotten; then the pieces are chosen anew."""


@dataclass(frozen=True)
class Report:
    """One forget, as far as it has come."""

    number: int
    turns: int
    chunks: int
    on_their_way: int
    """Events erased before they were stored: from streams, dead letters and this machine's spool."""
    verified: bool
    search: proof.Search | None
    """None when it was not asked for, or has not come so far."""
    problems: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        searched = None
        if self.search is not None:
            searched = {name: getattr(self.search, name) for name in ("pieces", "files", "bytes", "keys")}
        return {
            "turns": self.turns,
            "chunks": self.chunks,
            "on_their_way": self.on_their_way,
            "verified": self.verified,
            "searched": searched,
            "found": list(self.search.found) if self.search else [],
            "problems": list(self.problems),
        }


class Erasure:
    """Everything after the tombstones: repeated from its start until it comes to its end."""

    def __init__(
        self, settings: Settings, catalog: Catalog, client: redis.Redis, on_step: Callable[[str], None]
    ) -> None:
        self._settings = settings
        self._catalog = catalog
        self._client = client
        self._on_step = on_step
        self._vectors = VectorStore(settings.vectors_location)
        self._problems: list[str] = []
        self._away = ""
        """Why Redis could not be asked, once it could not."""

    def finish(self, *, verify: bool) -> list[Report]:
        """Erase what every unfinished tombstone covers; one report each. Raises `StoreUnavailable`."""
        try:
            return self._finish(verify=verify)
        except RetryableError as error:
            raise StoreUnavailable(
                f"{error}. What is forgotten is hidden, not all of it is erased: `scope-recall forget --resume` goes on"
            ) from None

    def _finish(self, *, verify: bool) -> list[Report]:
        with self._catalog.locks.maintaining():
            forgets = self._catalog.tombstones.unfinished()
            numbers = [one.tombstone.id for one in forgets]
            # A kill between the file and the tombstone's commit leaves a file that no tombstone explains.
            self._catalog.tombstones.tidy(
                lambda known: proof.discard(self._settings, proof.kept_numbers(self._settings) - known)
            )
            if not forgets:
                return []
            begun_here = {number for number in numbers if proof.load(self._settings, number) is not None}
            on_their_way = self._erase_on_their_way(forgets)
            self._erase_stored(forgets)
            self._with_redis("erasing in Redis' files", self._scrub_redis)
            temporary.clear(self._settings)
            search = self._search(numbers) if verify else None
            lost = [one for one in forgets if one.turns and one.tombstone.id not in begun_here]
            if verify and lost:
                self._problems.append("its files were not searched: the pieces to look for are on another machine")
            erased = not self._problems and not (search and search.found)
            reports = [
                Report(
                    one.tombstone.id,
                    one.turns,
                    one.chunks,
                    on_their_way,
                    erased and verify,
                    search,
                    tuple(self._problems),
                )
                for one in forgets
            ]
            if erased or (lost and not (search and search.found)):
                for number in numbers:
                    self._catalog.tombstones.finish(number)
                proof.discard(self._settings, numbers)
            return reports

    def _erase_on_their_way(self, forgets: Sequence[Forget]) -> int:
        """The spool first: what a sender has taken out of it is on the stream by then."""
        self._on_step("erasing on the way")
        for one in forgets:
            covered = (payload for payload, accepted in self._payloads() if _covers([one], payload, accepted))
            proof.keep(self._settings, one.tombstone.id, filter(None, map(_content, covered)))
        erased = erase_spooled(self._settings, lambda record: _covers(forgets, record.payload, _accepted(record)))

        def in_redis() -> None:
            nonlocal erased
            erased += sum(
                redis_erasure.erase_entries(
                    self._client,
                    self._settings,
                    lambda entry: _covers(forgets, entry.payload, entry.accepted or entry.order),
                )
            )

        self._with_redis("erasing in Redis", in_redis)
        return erased

    def _scrub_redis(self) -> None:
        self._problems += redis_erasure.scrub(self._client, self._settings)

    def _erase_stored(self, forgets: Sequence[Forget]) -> None:
        """Vectors, indexes, the files of older versions, and what the catalog's own files still hold."""
        spaces = [one.space for one in self._catalog.spaces.all()]
        self._on_step("erasing vectors")
        self._delete_doomed(spaces)
        with self._catalog.locks.erasing():
            for space in spaces:
                for one in forgets:
                    if one.selection is not None:
                        self._vectors.erase(space, one.selection, one.tombstone.cutoff)
                self._vectors.erase_deleted(space)
        self._on_step("building indexes anew")
        for stored in self._catalog.spaces.all():
            self._vectors.rebuild_indexes(stored.space, fine=stored.search.fine)
        self._on_step("erasing old files")
        with self._catalog.locks.erasing():
            for space in spaces:
                self._vectors.drop_history(space)
            self._catalog.scrub()

    def _delete_doomed(self, spaces: Sequence[Space]) -> None:
        """Delete the vectors of turns that retention has hidden, a piece at a time, so that ingest goes on between."""
        for keys in self._catalog.retention.doomed():
            # Alone, nobody is between the two stores: a turn that was pushed again meanwhile has its vectors, and they
            # stay. All others go.
            with self._catalog.locks.erasing():
                known = self._catalog.known(keys)
                current = [(key, known[key].content_hash if key in known else None) for key in keys]
                for space in spaces:
                    self._vectors.delete_superseded(space, current)

    def _search(self, numbers: Sequence[int]) -> proof.Search:
        """Look for what was forgotten; pieces that others say as well are left out."""
        self._on_step("searching every byte")
        pieces = [piece for number in numbers for piece in proof.load(self._settings, number) or ()]
        client = self._client if self._redis_answers() else None
        for attempt in range(1, SEARCHES + 1):
            chosen = proof.distinctive(pieces, self._remaining())
            search = proof.look_for(chosen, self._settings, client)
            if not search.found or attempt == SEARCHES:
                break
        return search

    def _remaining(self) -> Iterator[str]:
        """Everything that is said and not forgotten."""
        yield from self._catalog.tombstones.remaining_contents()
        for payload, _ in self._payloads():
            yield _content(payload) or payload.decode(errors="replace")

    def _payloads(self) -> Iterator[tuple[bytes, str]]:
        """(JSON, accepted order) of every event that is spooled here, on a stream, or a dead letter."""
        for record in spooled_events(self._settings):
            yield record.payload, _accepted(record)
        if self._redis_answers():
            with mapped_errors(self._settings):
                for entry in redis_erasure.entries(self._client, self._settings):
                    yield entry.payload, entry.accepted or entry.order

    def _with_redis(self, step: str, action: Callable[[], None]) -> None:
        """A Redis that is away is a problem to be reported, not a reason to leave the stores as they are."""
        self._on_step(step)
        if redis_erasure.never_ran(self._settings):
            return
        if self._redis_answers():
            self._ask(action)
        problem = f"{self._away}; then `scope-recall forget --resume`"
        if self._away and problem not in self._problems:
            self._problems.append(problem)

    def _redis_answers(self) -> bool:
        """Once it did not it is not asked again: each time would wait for it anew."""
        if not self._away:
            self._ask(self._client.ping)
        return not self._away

    def _ask(self, action: Callable[[], object]) -> None:
        try:
            with mapped_errors(self._settings):
                action()
        except StreamUnavailable as error:
            self._away = str(error)


def _covers(forgets: Sequence[Forget], payload: bytes, accepted: str) -> bool:
    facts = Facts.of_payload(payload, accepted)
    return facts is not None and any(one.tombstone.covers(facts) for one in forgets)


def _accepted(record: Record) -> str:
    return order_at(record.accepted_ms)


def _content(payload: bytes) -> str | None:
    """What an event says; None for what is no event."""
    try:
        content = json.loads(payload)["content"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return content if isinstance(content, str) else None
