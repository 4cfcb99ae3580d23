"""What to set, in plain sentences, from one's own labelled file: only what the intervals support. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from producers.scripts import foreign_scripts
from query.evaluation.asking import Run
from query.evaluation.comparison import ALL, Row
from query.evaluation.intervals import intervals
from query.evaluation.labelled import LabelledQuestion, LabelledSet
from query.evaluation.metrics import Metrics, mean_of, score_question
from workers.embedding.registry import recommended_multilingual

DECIDES = ("R@5", "MRR")
"""What a setting is chosen by: the turns in a context block, and when those do not differ, their order."""
MUCH_BELOW_THE_CEILING = 0.1
"""What R@5 must lie below what was found at all before the order is the thing to work on."""
LOW_CEILING = 0.9
"""What was found at all must lie below before the candidates are."""
NEAR_DEADLINE = 0.9
LEAST_ALIKE = 20
"""Questions from which "no worse beyond chance" means something: with a few, hardly anything is beyond chance."""
MUCH_FASTER = 0.5


def advice_of(labelled: LabelledSet, runs: Sequence[Run], rows: Sequence[Row]) -> list[str]:
    """One sentence or two an entry, each with its figures; `runs` and `rows` begin with the settings as they are."""
    said = _evidence(labelled)
    if not rows:
        return said
    best, sentences = _choice(runs, rows)
    said += sentences
    said += _by_language(runs, rows)
    said += _ceiling(labelled.scored, best)
    said += _languages(labelled.scored, best)
    return said + [line for run in runs for line in _deadline(run)]


def _evidence(labelled: LabelledSet) -> list[str]:
    missing = labelled.without_evidence_in_scope()
    if not missing:
        return []
    question, (session, index) = missing[0]
    return [
        f"{len(missing)} of {len(labelled.scored)} questions name evidence that is not among the turns they search, "
        f"such as {question.judged.query_id} ({session} turn {index}); no setting can find it: mend the evidence or "
        "the scope"
    ]


def _choice(runs: Sequence[Run], rows: Sequence[Row]) -> tuple[Run, list[str]]:
    """The setting to use, and why."""
    base, others = runs[0], [row for row in rows if row.group.kind == ALL and row.gains]
    if not others:
        return base, []
    for metric in DECIDES:
        better = [row for row in others if row.gains[metric].beyond_chance and row.gains[metric].mean > 0]
        if better:
            row = max(better, key=lambda row: row.gains[metric].mean)
            run = next(run for run in runs if run.variant.name == row.setting)
            line = f"set {run.variant.as_settings}: {metric} {row.gains[metric]} over {base.variant.name}"
            return run, [line + _at_a_price(row, metric) + _slower(run, base)]
    worse = [row for row in others if row.gains["R@5"].beyond_chance]
    if len(worse) == len(others):
        named = ", ".join(f"{row.setting} R@5 {row.gains['R@5']}" for row in worse)
        return base, [f"keep the settings as they are: beyond chance, all others find less ({named})"]
    said = [
        f"keep the settings as they are: over these {others[0].metrics.questions} questions nothing compared is better "
        "beyond chance, by R@5 or by MRR"
    ]
    if others[0].metrics.questions < LEAST_ALIKE:
        return base, said
    alike = [run for run in runs[1:] if run.variant.name not in {row.setting for row in worse}]
    said += [line for run in alike for line in _faster(run, base)]
    return base, said


def _at_a_price(row: Row, chosen_by: str) -> str:
    lost = [name for name, gain in row.gains.items() if name != chosen_by and gain.beyond_chance and gain.mean < 0]
    return "".join(f"; but {name} {row.gains[name]}" for name in lost)


def _slower(run: Run, base: Run) -> str:
    mine, its = run.quantile_ms(0.5), base.quantile_ms(0.5)
    if mine is None or its is None or its >= mine * MUCH_FASTER:
        return ""
    return f"; it takes {mine:,.0f} ms a question instead of {its:,.0f} (p50)"


def _faster(run: Run, base: Run) -> list[str]:
    mine, its = run.quantile_ms(0.5), base.quantile_ms(0.5)
    if mine is None or its is None or mine >= its * MUCH_FASTER:
        return []
    return [
        f"where speed counts, set {run.variant.as_settings}: {mine:,.0f} ms a question instead of {its:,.0f} (p50), "
        "and R@5 is no worse beyond chance"
    ]


def _by_language(runs: Sequence[Run], rows: Sequence[Row]) -> list[str]:
    """Where one language would have another setting than all questions together."""
    languages = {row.group.name for row in rows if row.group.kind == "language"}
    if len(languages) < 2 or len(runs) < 2:
        return []
    said = []
    for name in sorted(languages):
        its = [row for row in rows if row.group.kind == "language" and row.group.name == name and row.gains]
        differing = [row for row in its if row.gains["R@5"].beyond_chance]
        if differing:
            row = max(differing, key=lambda row: abs(row.gains["R@5"].mean))
            said.append(
                f"on the {row.metrics.questions} questions in {name} script, {row.setting} changes R@5 by "
                f"{row.gains['R@5']}"
            )
    return said


def _ceiling(questions: Sequence[LabelledQuestion], run: Run) -> list[str]:
    """Whether to work on the candidates or on their order."""
    ranked, wide = run.ranked, run.variant.settings.wide
    if run.variant.settings.min_score:
        return []  # what was left out for its confidence may well have been a candidate
    rows = []
    for question in questions:
        evidence, found = question.judged.evidence, ranked[question.judged.query_id]
        share = len(evidence.intersection(found)) / len(evidence)
        rows.append((share, share - score_question(evidence, found).recall[5]))
    ceiling, below = intervals(np.array(rows))
    name, said = run.variant.name, []
    if ceiling.high < LOW_CEILING:
        said.append(
            f"{name}: of the evidence, {ceiling} is among the {wide} candidates at all, and what is not cannot be "
            f"ranked: compare wide={min(1000, 2 * wide)}, or another embedder"
        )
    if below.low > MUCH_BELOW_THE_CEILING:
        said.append(
            f"{name}: {ceiling} of the evidence is among the {wide} candidates, and R@5 lies {below} below that: "
            "the order is what can be better, so compare rerankers"
        )
    return said


def _languages(questions: Sequence[LabelledQuestion], run: Run) -> list[str]:
    """Questions that the embedder cannot read."""
    scripts = None if run.ingest.note.scripts is None else frozenset(run.ingest.note.scripts)
    ranked = run.ranked
    foreign: list[Metrics] = []
    spoken: list[Metrics] = []
    for question in questions:
        row = score_question(question.judged.evidence, ranked[question.judged.query_id])
        (foreign if foreign_scripts(question.query, scripts) else spoken).append(row)
    if not foreign:
        return []
    against = f", the others {mean_of(spoken).recall[5]:.3f}" if spoken else ""
    return [
        f"{run.variant.name}: {len(foreign)} of {len(questions)} questions are in a script that {run.embedder} does "
        f"not speak, so that only words were searched for (R@5 {mean_of(foreign).recall[5]:.3f}{against}): compare "
        f"embedder={recommended_multilingual()}"
    ]


def _deadline(run: Run) -> list[str]:
    deadline, slow = run.variant.settings.deadline_ms, run.quantile_ms(0.95)
    cut = [reply for reply in run.replies if any(f"within {deadline} ms" in line for line in reply.degraded)]
    share = len(cut) / len(run.replies)
    if not share or slow is None or slow < NEAR_DEADLINE * deadline:
        return []
    return [
        f"{run.variant.name}: {share:.0%} of the answers were not wholly reranked, with {slow:,.0f} ms at p95 against "
        f"deadline_ms={deadline}: raise deadline_ms, lower wide, or choose a faster reranker"
    ]
