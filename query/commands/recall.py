"""`scope-recall recall`: ask one question, or a file of them."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import click
from rich.panel import Panel
from rich.table import Table

from producers.errors import UsageError
from producers.events import Role
from producers.terminal import DONE, Terminal, command, examples, moment, plain
from query.json_lines import read_rows
from query.recall import Answer, Question, Recaller
from query.recent import Recent, parse_recent
from workers.stores.scope import Scope

LINE_LISTS = ("sessions", "agents", "roles", "tags", "sources", "exclude_sessions", "exclude_recent")
LINE_FILTERS = ("tenant", "since", "until", *LINE_LISTS)
"""Filters that a line of --queries may name; its other fields, such as evidence, are not looked at."""
LINE_FIELDS = ("hits", "degraded")
AROUND_FIELDS = ("around", "context")
"""Parts of an answer that a line of --queries gets, and what it gets with --neighbours as well."""
NEARLY = 0.75
"""Likeness from which a field is taken for a misspelt filter: role, tag, session, exclude_session."""


@command(
    short_help="Ask a question; get the turns that answer it.",
    epilog=examples(
        'scope-recall recall "which port does the proxy listen on?" --tenant acme',
        'scope-recall recall "上次部署失败的原因" --tenant acme --since 2026-01-01 -k 3 --json',
        "scope-recall recall --queries questions.jsonl -k 10",
    ),
)
@click.argument("query", required=False)
@click.option("--queries", type=click.Path(path_type=Path), help='JSON lines {"query_id", "query", "tenant"}.')
@click.option("--tenant", help="Whose memory to search. Required with QUERY.")
@click.option("--session", "sessions", multiple=True, help="Only these sessions.")
@click.option("--exclude-session", "exclude_sessions", multiple=True, help="None of these sessions.")
@click.option("--exclude-recent", multiple=True, metavar="SESSION:N", help="Not the N newest turns of a session.")
@click.option("--agent", "agents", multiple=True, help="Only these agents' turns.")
@click.option("--role", "roles", multiple=True, type=click.Choice(get_args(Role)), help="Only these roles.")
@click.option("--tag", "tags", multiple=True, help="Only turns with one of these tags.")
@click.option("--source", "sources", multiple=True, help="Only turns from these sources.")
@click.option("--since", help="Only turns said at or after this time: 2026-01-31 (UTC) or 2026-01-31T09:00:00+08:00.")
@click.option("--until", help="Only turns said before this time.")
@click.option("-k", type=int, default=5, show_default=True, help="Turns to return.")
@click.option("--wide", type=click.IntRange(1, 1000), help="Candidate turns before reranking.")
@click.option("--embedder", help="The embedder; only one that made the stored vectors will do.")
@click.option("--reranker", help="auto, none, late-interaction, bge, http, or a model's name or path.")
@click.option(
    "--deadline-ms", type=click.IntRange(min=1), help="Time for one answer; reranking stops early to meet it."
)
@click.option("--neighbours", type=click.IntRange(0, 10), help="Turns to show before and after each hit.")
@click.option("--no-fold", is_flag=True, help="Return near-duplicates as hits of their own.")
@click.option("--explain", is_flag=True, help="Show how each hit got its score.")
def recall(
    terminal: Terminal, query: str | None, queries: Path | None, k: int, explain: bool, no_fold: bool, **filters: Any
) -> int:
    """Recall the turns that answer QUERY, within one tenant, with a block of context for a prompt.

    It reads the stores only: no Redis and no running system is needed.
    """
    settings = terminal.settings
    if (query is None) == (queries is None):
        raise UsageError("recall: give a QUERY or --queries FILE, one of them")
    sizes: dict[str, Any] = {
        "k": k,
        "wide": max(settings.wide, k),
        "deadline_ms": settings.deadline_ms,
        "explain": explain,
        "neighbours": settings.neighbours,
        "fold": not no_fold,
    }
    if queries is not None:
        given = sorted(name for name, value in filters.items() if value)
        if given:
            raise UsageError(
                f"recall --queries: {', '.join(given)} cannot be given here; each line names its own scope"
            )
        questions = list(read_questions(queries))
        recaller = Recaller.open(settings)
        for query_id, text, scope, recent in questions:
            line = recaller.recall(Question(text, scope, **sizes, exclude_recent=recent)).as_json()
            kept = LINE_FIELDS + (AROUND_FIELDS if settings.neighbours else ())
            terminal.emit({"query_id": query_id, **{name: line[name] for name in kept}})
        return DONE
    if not filters["tenant"]:
        raise UsageError("recall: --tenant is missing; it names whose memory to search")
    recent = parse_recent(filters.pop("exclude_recent"))
    question = Question(query or "", scope_of(**filters), **sizes, exclude_recent=recent)
    recaller = Recaller.open(settings)
    answer = recaller.recall(question)
    if terminal.json:
        terminal.emit(answer.as_json())
    else:
        show(terminal, answer)
    return DONE


def scope_of(*, since: str | None, until: str | None, **filters: Any) -> Scope:
    """A scope from the command's options."""
    return Scope(since=moment("since", since), until=moment("until", until), **filters)


def read_questions(path: Path) -> Iterator[tuple[str, str, Scope, tuple[Recent, ...]]]:
    """(query_id, query, scope, exclude_recent) of each line. Raises `UsageError` naming the line and what is wrong."""
    for number, row in read_rows(path):
        try:
            query_id, query = row["query_id"], row["query"]
            scope, recent = _scope_of_line(row)
            Question(query, scope)  # refuses what cannot be asked
        except KeyError as error:
            raise UsageError(f"{path}, line {number}: {error.args[0]} is missing") from None
        except UsageError as error:
            raise UsageError(f"{path}, line {number}: {error}") from None
        yield str(query_id), query, scope, recent


def _scope_of_line(row: dict[str, Any]) -> tuple[Scope, tuple[Recent, ...]]:
    """The scope that a line names, and what is too recent for it.

    A field that is nearly a filter's name is refused: the answer would be too wide.
    """
    for name in row:
        near = difflib.get_close_matches(name, LINE_FILTERS, n=1, cutoff=NEARLY)
        if near and name not in LINE_FILTERS:
            raise UsageError(f"{name}: unknown field; did you mean {near[0]}?")
    if not isinstance(row["query"], str) or not isinstance(row["tenant"], str):
        raise UsageError("query and tenant are strings")
    times: dict[str, str | None] = {}
    for name in ("since", "until"):
        times[name] = row.get(name)
        if not isinstance(times[name], str | None):
            raise UsageError(f"{name}: a time as text is due, got {row[name]!r}")
    lists = {}
    for name in LINE_LISTS:
        values = row.get(name) or ()
        if not isinstance(values, (list, tuple)) or not all(isinstance(value, str) for value in values):
            raise UsageError(f"{name}: a list of strings is due, got {values!r}")
        lists[name] = tuple(values)
    recent = parse_recent(lists.pop("exclude_recent"))
    return scope_of(tenant=row["tenant"], since=times["since"], until=times["until"], **lists), recent


def show(terminal: Terminal, answer: Answer) -> None:
    """The answer for people."""
    if not answer.hits:
        terminal.say("nothing found in this scope")
    table = Table("", "score", "said by", "when", "where", "what")
    table.columns[-1].overflow = "fold"  # Chinese has no spaces to break at, and would be cut off
    for number, hit in enumerate(answer.hits, 1):
        when = hit.created_at.strftime("%Y-%m-%d %H:%M") if hit.created_at else ""
        where = plain(f"{hit.session_id} turn {hit.turn_index}")
        table.add_row(str(number), f"{hit.score:.3f}", plain(hit.speaker or hit.role), when, where, plain(hit.content))
        if hit.also:
            table.add_row("", "", "", "", "", plain(f"the same in {', '.join(hit.also)}"), style="dim")
        if hit.explain:
            parts = ", ".join(
                f"{name} {_number(part['raw'])} → {part['scaled']:.2f}" for name, part in hit.explain.items()
            )
            table.add_row("", "", "", "", "", parts, style="dim")
    if answer.hits:
        terminal.out.print(table)
    if answer.context:
        terminal.out.print(Panel(plain(answer.context), title="context block", title_align="left"))
    used = f"embedder {answer.embedder}, reranker {answer.reranker or 'none'}"
    stages = ", ".join(f"{name} {value:.0f} ms" for name, value in answer.timings_ms.items())
    terminal.say(f"{used}; {stages}", style="dim")
    for line in answer.degraded:
        terminal.note(f"degraded: {line}", style="yellow")


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:.3f}"
