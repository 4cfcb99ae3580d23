"""Another model without downtime: a space is filled from the catalog beside the active one, compared, switched to.

    begun (command) → filled → compared on probes → indexed → switched → the one before kept → dropped

Does I/O on both stores and loads models. What is to be done next is told by the catalog alone, so whoever comes next
goes on where a killed run ended. Live turns are written to both spaces all the while (`workers.ingest`).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from producers.errors import Busy, NotReady
from producers.logs import get_logger
from producers.settings import Settings
from workers.embedding.port import Embedder
from workers.encoding import Encoder, load_model
from workers.maintenance.dropping import drop, due
from workers.maintenance.filling import Filled, Filling, Stopped
from workers.maintenance.index import keep_indexes_of
from workers.maintenance.job import JobContext, Outcome
from workers.maintenance.lease import exclusive
from workers.maintenance.probing import dense_recall, probes_of
from workers.runtime import stopping
from workers.stores.catalog import Catalog
from workers.stores.space import Space
from workers.stores.spaces import StoredSpace
from workers.stores.vectors import VectorStore

FILL = "reembed-fill"
"""The lease of whoever fills: a command in the foreground, or the job, which leaves it to the command."""
SLICE_SECONDS = 45.0
"""One run of the job; other jobs of the worker have their turn in between."""
BEHIND = timedelta(minutes=5)
"""How old the tables may be that two models are compared by; old versions are kept for longer."""

log = get_logger(__name__)


class Models:
    """Encoders that one process keeps from run to run, as long as their spaces are being filled."""

    def __init__(self) -> None:
        self._encoders: dict[str, Encoder] = {}

    def encoder(self, stored: StoredSpace, settings: Settings) -> Encoder:
        """Errors as `load_model`."""
        if stored.space.id not in self._encoders:
            self._encoders[stored.space.id] = Encoder(stored.space, load_model(stored, settings))
        return self._encoders[stored.space.id]

    def embedder(self, stored: StoredSpace, settings: Settings) -> Embedder:
        """The model alone; it is not kept unless its space is filled."""
        kept = self._encoders.get(stored.space.id)
        return kept.embedder if kept else load_model(stored, settings)

    def keep(self, spaces: set[str]) -> None:
        """Let go of all others."""
        for name in self._encoders.keys() - spaces:
            del self._encoders[name]


models = Models()


def keep_spaces(context: JobContext) -> Outcome:
    """The job `reembed`: go on with what was begun, for a while."""
    until = time.monotonic() + SLICE_SECONDS

    def holds() -> bool:
        return context.lease.held and not stopping()

    work = Reembedding(context.settings, context.catalog, holds)
    did = work.drop_due(datetime.now(UTC))
    if len(context.catalog.spaces.written()) < 2:  # as most of the time
        models.keep(set())
        return Outcome("; ".join(did) or None)
    try:
        with exclusive(context.client, context.settings, FILL) as lease:
            found = work.advance(lambda: lease.held and holds() and time.monotonic() < until)
    except Busy:  # a person is at it, and watches
        return Outcome("; ".join(did) or None)
    return Outcome(
        "; ".join([*did, *([found.did] if found.did else [])]) or None, found.before, found.after, found.problem
    )


class Reembedding:
    """The steps, for one process."""

    def __init__(self, settings: Settings, catalog: Catalog, holds: Callable[[], bool] = lambda: True) -> None:
        """`holds`: whether nobody else can be at it."""
        self._settings = settings
        self._catalog = catalog
        self._holds = holds
        self._vectors = VectorStore(settings.vectors_location)

    def drop_due(self, now: datetime) -> list[str]:
        """Drop the spaces whose time has come; says which."""
        gone = []
        for one in self._catalog.spaces.all():
            if due(one, self._settings.standby_days, now) and drop(
                self._catalog, self._vectors, one.space, self._holds
            ):
                gone.append(f"dropped {one.space.id}")
        return gone

    def advance(self, go_on: Callable[[], bool]) -> Outcome:
        """Fill what lacks turns; compare and switch what does not lack any."""
        beside = [one for one in self._catalog.spaces.written() if one.state != "active"]
        building = next((one for one in beside if one.state == "building"), None)
        did = []
        refused: Filled | None = None
        before = self.figures(building.space) if building else {}
        try:
            # The one being built first: what keeps turns out of a standby must not keep it from its end.
            for stored in sorted(beside, key=lambda one: one.state):
                if not self._lacking(stored.space):
                    continue
                found = self.fill(stored, go_on)
                did += [f"brought {found.turns:,} turns into {stored.space.id}"] if found.turns else []
                refused = found if stored is building and found.refused and found.complete else refused
                if stored is building:
                    break
            outcome = self._finish(building, refused) if building is not None and self._holds() else Outcome(None)
        except Stopped:
            outcome = Outcome(None)
        finally:
            lacking = [one for one in self._catalog.spaces.all() if one.state == "building"]
            models.keep({one.space.id for one in lacking if self._lacking(one.space)})
        did += [outcome.did] if outcome.did else []
        after = {**(self.figures(building.space) if building else {}), **outcome.after}
        return Outcome("; ".join(did) or None, before, after, outcome.problem)

    def fill(
        self, stored: StoredSpace, go_on: Callable[[], bool], on_progress: Callable[[int], None] = lambda _: None
    ) -> Filled:
        """Bring what the space lacks into it; errors as `Filling.run`."""
        encoder = models.encoder(stored, self._settings)
        rate = self._settings.reembed_rate if stored.plan.rate is None else stored.plan.rate
        return Filling(self._catalog, self._vectors, encoder, rate=rate, on_progress=on_progress).run(go_on)

    def figures(self, space: Space) -> dict[str, Any]:
        """How far a space is."""
        filled, turns = self._catalog.filling.filled_and_turns(space)
        return {"turns": turns, "filled": filled}

    def switch(self, to: Space, *, missing: int = 0) -> None:
        """Have recall read `to`. Raises `NotReady` when it lacks more turns than `missing`."""
        with self._catalog.locks.erasing():  # whoever was writing has ended: what is in the catalog is in the vectors
            self._catalog.spaces.switch(to, missing=missing)
        log.info("space_switched", space=to.id)

    def _lacking(self, space: Space) -> int:
        """Turns that are not in the space."""
        filled, turns = self._catalog.filling.filled_and_turns(space)
        return turns - filled

    def _finish(self, building: StoredSpace, refused: Filled | None) -> Outcome:
        """Compare and switch, if the space holds every turn; nothing when it was found worse before."""
        fresh = self._catalog.spaces.building()  # a person may have decided meanwhile
        if fresh is None or fresh.space != building.space or (fresh.plan.verdict and not fresh.plan.switch_anyway):
            return Outcome(None)
        lacking = self._lacking(fresh.space)
        allowed = refused.refused if refused and fresh.plan.switch_anyway else 0
        if lacking > allowed:
            if refused and lacking <= refused.refused:
                return Outcome(None, problem=_refused(refused, fresh.space))
            return Outcome(None)  # there is more to bring in
        # First, since both are asked hundreds of times: no other job keeps them in order while this one runs.
        with self._catalog.locks.maintaining():
            for stored in filter(None, (self._catalog.spaces.active(), fresh)):
                keep_indexes_of(stored, self._vectors, self._catalog, self._settings)
        figures: dict[str, Any] = {}
        if not fresh.plan.switch_anyway:
            figures = self.compare(fresh)
            if figures["recall"] < figures["recall_before"] - self._settings.reembed_tolerance:
                self._catalog.spaces.note(fresh.space, verdict=figures)
                return Outcome(None, after=figures, problem=worse(figures, fresh.space))
        if not self._holds() or self._lacking(fresh.space) > allowed:
            return Outcome(None, after=figures)
        try:
            self.switch(fresh.space, missing=allowed)
        except NotReady:  # a worker has just left a turn out, which the next run brings in
            return Outcome(None, after=figures)
        return Outcome(f"switched recall to {fresh.space.id}", after=figures)

    def compare(self, building: StoredSpace) -> dict[str, Any]:
        """Dense recall@10 of the active space and of `building` on the same probes. Raises `Stopped`."""
        active = self._catalog.spaces.active()
        assert active is not None
        probes, source = probes_of(self._catalog)

        def pause() -> None:
            if not self._holds():
                raise Stopped

        # As of one moment: hundreds of questions, between each two of which workers add files to the table.
        vectors = VectorStore(self._settings.vectors_location, behind=BEHIND)
        recall = {}
        for stored in (active, building):
            embedder = models.embedder(stored, self._settings)
            recall[stored.state] = dense_recall(self._catalog, vectors, embedder, stored.space, probes, pause)
        return {
            "probes": len(probes),
            "probes_are": source,
            "recall_before": round(recall["active"], 4),
            "recall": round(recall["building"], 4),
        }


def probes_in_words(figures: dict[str, Any]) -> str:
    """What was compared by."""
    return f"{figures['probes']} " + (
        "given questions" if figures["probes_are"] == "given" else "parts of stored turns"
    )


def worse(figures: dict[str, Any], space: Space) -> str:
    """What to say of a space that was found worse, and what to do."""
    return (
        f"recall@10 on {probes_in_words(figures)} is {figures['recall']:.3f} with {space.embedder}, and "
        f"{figures['recall_before']:.3f} with the model before: reads were not switched. `scope-recall reembed "
        "--switch-anyway` does it all the same, `--cancel` drops the new space, `--probes FILE` compares by other "
        "questions"
    )


def _refused(filled: Filled, space: Space) -> str:
    return (
        f"{space.embedder} refuses {filled.refused:,} turns ({filled.reason}): reads were not switched, since recall "
        "would miss them. `scope-recall reembed --switch-anyway` does it all the same, `--cancel` drops the new space"
    )
