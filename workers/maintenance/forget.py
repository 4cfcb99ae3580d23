"""Forgetting: a person's selection is hidden at once by a tombstone, then erased (`erasure.py`). Does I/O."""

from __future__ import annotations

from collections.abc import Callable

from producers.connection import connect
from producers.errors import NotReady, StoreUnavailable
from producers.settings import Settings
from workers.maintenance import erasure_proof as proof
from workers.maintenance import redis_erasure
from workers.maintenance.erasure import Erasure, Report
from workers.maintenance.job import JobContext, Outcome
from workers.stores.catalog import Catalog
from workers.stores.selection import Selection


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
            with connect(settings) as hasty:  # what hides is a transaction, in which nobody waits for Redis
                try:
                    number = catalog.tombstones.bury(
                        selection,
                        lambda: redis_erasure.cutoff(hasty, settings),
                        lambda number, contents: proof.keep(settings, number, contents),
                    )
                except StoreUnavailable as error:
                    raise StoreUnavailable(f"nothing is forgotten yet: {error}; then forget again") from None
                redis_erasure.wait_past_the_cutoff(hasty)
            reports = Erasure(settings, catalog, client, on_step).finish(verify=verify)
            # Another process may have finished it between the two steps.
            return next((one for one in reports if one.number == number), _done(*catalog.tombstones.done(number)))
    finally:
        catalog.close()


def count(settings: Settings, selection: Selection) -> tuple[int, int]:
    """(turns, sessions) that are stored and would be forgotten."""
    try:
        catalog = Catalog.open(settings.catalog_location)
    except NotReady:  # nothing has been stored yet
        return 0, 0
    try:
        return catalog.tombstones.count(selection)
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
    problem = f"forgets not proven: {len(left)}: {why or 'bytes of them are left'}" if left else None
    figures = {"finished": len(reports) - len(left), "left": len(left)}
    return Outcome(f"forgets finished: {figures['finished']}" if reports else None, {}, figures, problem)


def _done(number: int, turns: int, chunks: int, erased: bool) -> Report:
    """A forget that another process has finished, together with its own."""
    problems = () if erased else ("another process is at it",)
    return Report(number, turns, chunks, 0, erased, None, problems)
