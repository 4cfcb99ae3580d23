"""The result of an evaluation, for people and for programs. Prints; decides nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.table import Column, Table

from producers.terminal import Terminal, plain
from query.evaluation.asking import Run
from query.evaluation.comparison import ALL, Row, telling
from query.evaluation.intervals import Gain
from query.evaluation.labelled import LabelledQuestion
from query.evaluation.silence import silence

SHOWN = ("R@1", "R@5", "R@10", "R@50", "any@5", "S@5", "MRR")
SHOWN_BESIDE = ("R@1", "R@5", "R@10", "R@50", "MRR")
"""Fewer where the gains need room."""
GAINS = ("R@5", "MRR")
MOST_LINES = 5
"""A degraded line may hold figures, so that there may be hundreds."""


def as_json(
    questions: Sequence[LabelledQuestion], runs: Sequence[Run], rows: Sequence[Row], advice: Sequence[str]
) -> dict[str, Any]:
    """Everything, with the first setting's figures on top."""
    first = runs[0]
    mine = {(row.group.kind, row.group.name): row.metrics.as_dict() for row in rows if row.setting == _name(first)}
    return {
        "overall": mine.get((ALL, ALL)),
        "categories": {name: figures for (kind, name), figures in mine.items() if kind == "category"},
        "languages": {name: figures for (kind, name), figures in mine.items() if kind == "language"},
        **_figures(first),
        "advice": list(advice),
        "settings": [_one_setting(questions, run, rows) for run in runs],
    }


def show(
    terminal: Terminal,
    questions: Sequence[LabelledQuestion],
    runs: Sequence[Run],
    rows: Sequence[Row],
    advice: Sequence[str],
) -> None:
    """The table, the times, what was degraded, and the advice."""
    if not rows:
        terminal.say("no question has evidence, so that there is nothing to score")
    else:
        terminal.out.print(_table(runs[0], rows) if len(runs) == 1 else _comparison(runs, rows))
    if len(runs) > 1 and rows:
        terminal.say("gains are paired, with their 95% interval; * beyond chance", style="dim")
    for run in runs:
        middle, slow = run.quantile_ms(0.5), run.quantile_ms(0.95)
        if middle is not None and slow is not None:
            told = f"{run.ingest.note.chunks:,} chunks; {middle:.0f} ms a question (median), {slow:.0f} ms (p95)"
            used = f"; embedder {run.embedder}, reranker {run.reranker or 'none'}"
            terminal.say(told if len(runs) == 1 else f"{_front(runs, run)}{told}{used}")
    if any(question.query_context for question in questions):
        for run in runs:
            read = f"{run.in_context} of {len(questions)} questions were read with the lines before them"
            terminal.say(f"{_front(runs, run)}{read}")
    for run in runs:
        terminal.say(f"{_front(runs, run)}{silence(questions, run.ranked)}")
    _show_degraded(terminal, runs)
    for line in advice:
        terminal.say(f"advice: {plain(line)}", style="yellow")


def _show_degraded(terminal: Terminal, runs: Sequence[Run]) -> None:
    """Each line once, with how many questions of which setting it is about; the most frequent ones."""
    found: dict[str, dict[str, int]] = {}
    for run in runs:
        for line, count in run.degraded.items():
            found.setdefault(line, {})[_name(run)] = count
    ordered = sorted(found.items(), key=lambda one: -sum(one[1].values()))
    for line, counts in ordered[:MOST_LINES]:
        count = max(counts.values())
        alike = len(counts) == len(runs) and min(counts.values()) == count
        where = f"{count}" if alike else ", ".join(f"{one} of {name}" for name, one in counts.items())
        terminal.say(f"degraded, {where} questions: {plain(line)}", style="yellow")
    if len(ordered) > MOST_LINES:
        for run in runs:
            shares = ", ".join(f"{leg} {share:.0%}" for leg, share in run.degraded_shares.items())
            terminal.say(f"{_front(runs, run)}degraded, of all answers: {shares}; --json has each line", style="yellow")


def _columns(*names: str) -> list[Column]:
    """What does not fit goes on in the next line: a figure that is cut off is none."""
    return [Column(name, overflow="fold") for name in names]


def _table(run: Run, rows: Sequence[Row]) -> Table:
    title = f"embedder {run.embedder}, reranker {run.reranker or 'none'}"
    table = Table(*_columns("questions", "n", *SHOWN, "R@5, 95%"), title=title)
    for row in telling(rows):
        flat, interval = row.metrics.as_dict(), row.intervals["R@5"]
        figures = (f"{flat[metric]:.3f}" for metric in SHOWN)
        around = f"{interval.low:.3f} to {interval.high:.3f}"
        table.add_row(plain(row.group.title), str(row.metrics.questions), *figures, around)
    return table


def _comparison(runs: Sequence[Run], rows: Sequence[Row]) -> Table:
    table = Table(*_columns("questions", "n", "setting", *SHOWN_BESIDE, *(f"{name} gain" for name in GAINS)))
    for row in telling(rows):
        first = not row.gains
        flat = row.metrics.as_dict()
        table.add_row(
            plain(row.group.title) if first else "",
            str(row.metrics.questions) if first else "",
            row.setting,
            *(f"{flat[metric]:.3f}" for metric in SHOWN_BESIDE),
            *("" if first else _gain(row.gains[name]) for name in GAINS),
            end_section=row.setting == _name(runs[-1]),
        )
    return table


def _one_setting(questions: Sequence[LabelledQuestion], run: Run, rows: Sequence[Row]) -> dict[str, Any]:
    mine = [row for row in rows if row.setting == _name(run)]
    return {
        "name": _name(run),
        "changes": dict(run.variant.changes),
        **_figures(run),
        **silence(questions, run.ranked).as_dict(),
        "degraded_shares": {leg: round(share, 4) for leg, share in run.degraded_shares.items()},
        "groups": [{"kind": row.group.kind, "name": row.group.name, **row.as_dict()} for row in mine],
    }


def _figures(run: Run) -> dict[str, Any]:
    middle, slow = run.quantile_ms(0.5), run.quantile_ms(0.95)
    return {
        "embedder": run.embedder or None,
        "reranker": run.reranker,
        "turns": run.ingest.note.turns,
        "chunks": run.ingest.note.chunks,
        "in_context": run.in_context,
        "p50_ms": None if middle is None else round(middle, 1),
        "p95_ms": None if slow is None else round(slow, 1),
        "degraded": dict(run.degraded),
    }


def _gain(gain: Gain) -> str:
    if not gain.differing:
        return "same"
    return f"{gain} *" if gain.beyond_chance else str(gain)


def _front(runs: Sequence[Run], run: Run) -> str:
    return f"{_name(run)}: " if len(runs) > 1 else ""


def _name(run: Run) -> str:
    return run.variant.name
