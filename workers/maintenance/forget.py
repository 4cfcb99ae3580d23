"""Forgetting: what is selected is hidden at once, then erased from everything that was written. Does I/O on all of it.

    tombstone (hides) → spool → streams, dead letters → vectors → indexes → old files, catalog → Redis' files → proof

The tombstone is the record of what is to be done: until it is marked as erased each step is repeated from the start by
whoever comes next, so a kill at any moment only delays the end. Everything that holds turns must be erased here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import redis

from producers.connection import connect, mapped_errors
from producers.errors import NotReady, RetryableError, StoreUnavailable, StreamUnavailable
from producers.settings import Settings
from producers.spool import erase_spooled, spooled_events
from producers.spool_file import Record
from workers.maintenance import erasure_proof as proof
from workers.maintenance import redis_erasure
from workers.maintenance.job import JobContext, Outcome
from workers.order import order_at
from workers.stores.catalog import Catalog
from workers.stores.selection import Facts, Selection
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


def forget(
    settings: Settings, selection: Selection, *, verify: bool = True, on_step: Callable[[str], None] = lambda _: None
) -> Report:
    """Forget the selection, and finish whatever forget was interrupted before.

    Recall returns none of it as soon as the first step is done. Raises `NotReady` where there is no data dir,
    `StoreUnavailable` when a store fails; what was begun is then finished by the next call of this or of `resume`.
    """
    if not settings.data_dir.is_dir():
        raise NotReady(f"no data dir at {settings.data_dir}: name the one whose turns are to be forgotten, --data-dir")
    catalog = Catalog.open(settings.catalog_location, create=True)
    try:
        with redis_erasure.reachable(settings), connect(settings, patience=redis_erasure.patience(settings)) as client:
            on_step("hiding")
            try:
                number = catalog.tombstones.bury(
                    selection,
                    lambda: redis_erasure.cutoff(client, settings),
                    lambda number, contents: proof.keep(settings, number, contents),
                )
            except StoreUnavailable as error:
                raise StoreUnavailable(f"nothing is forgotten yet: {error}; then forget again") from None
            redis_erasure.wait_past_the_cutoff(client)
            reports = Erasure(settings, catalog, client, on_step).finish(verify=verify)
            # Another process may have finished it between the two steps.
            return next((one for one in reports if one.number == number), _done(*catalog.tombstones.done(number)))
    finally:
        catalog.close()


def resume(settings: Settings, *, on_step: Callable[[str], None] = lambda _: None) -> list[Report]:
    """Finish every forget that was interrupted; errors as `forget`."""
    catalog = Catalog.open(settings.catalog_location)
    try:
        if not catalog.tombstones.unfinished() and not proof.kept_numbers(settings):
            return []
        with redis_erasure.reachable(settings), connect(settings, patience=redis_erasure.patience(settings)) as client:
            return Erasure(settings, catalog, client, on_step).finish(verify=True)
    finally:
        catalog.close()


def finish_forgets(context: JobContext) -> Outcome:
    """The job `forget`: finish what was interrupted."""
    reports = resume(context.settings)
    left = [one for one in reports if not one.verified]
    why = "; ".join(dict.fromkeys(problem for one in left for problem in one.problems))
    problem = f"{len(left)} forgets are not proven: {why or 'bytes of them are left'}" if left else None
    figures = {"finished": len(reports) - len(left), "left": len(left)}
    return Outcome(f"finished {figures['finished']} forgets" if reports else None, {}, figures, problem)


def _done(number: int, turns: int, chunks: int, erased: bool) -> Report:
    """A forget that another process has finished, together with its own."""
    problems = () if erased else ("another process is at it",)
    return Report(number, turns, chunks, 0, erased, None, problems)


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
            pieces = {number: bool(proof.load(self._settings, number)) for number in numbers}
            on_their_way = self._erase_on_their_way(forgets)
            self._erase_stored(forgets)
            self._with_redis("erasing in Redis' files", self._scrub_redis)
            search = self._search(numbers) if verify else None
            lost = [one for one in forgets if one.turns and not pieces[one.tombstone.id]]
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
        with self._catalog.locks.erasing():
            for space in spaces:
                for one in forgets:
                    self._vectors.erase(space, one.selection, one.tombstone.cutoff)
        self._on_step("building indexes anew")
        for stored in self._catalog.spaces.all():
            self._vectors.rebuild_indexes(stored.space, fine=stored.search.fine)
        self._on_step("erasing old files")
        with self._catalog.locks.erasing():
            for space in spaces:
                self._vectors.drop_history(space)
            self._catalog.scrub()

    def _search(self, numbers: Sequence[int]) -> proof.Search:
        """Look for what was forgotten; pieces that others say as well are left out."""
        self._on_step("searching every byte")
        pieces = [piece for number in numbers for piece in proof.load(self._settings, number)]
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
        try:
            with mapped_errors(self._settings):
                action()
        except StreamUnavailable as error:
            self._problems.append(f"{error}; then `scope-recall forget --resume`")

    def _redis_answers(self) -> bool:
        try:
            return bool(self._client.ping())
        except redis.RedisError:
            return False


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
