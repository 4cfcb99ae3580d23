"""`scope-recall recall`: ask one question, or a file of them."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import click
from rich.panel import Panel
from rich.table import Table

from producers.errors import UsageError
from producers.events import Role
from producers.settings import Settings
from producers.terminal import DONE, Terminal, command, examples, moment, plain
from query.answer import Answer
from query.json_lines import read_rows
from query.question import Question
from query.recall import Recaller
from query.recency import Recency
from query.recent import Recent, parse_recent
from workers.stores.facts import conditions_of, parse_condition
from workers.stores.placed_turns import Place
from workers.stores.scope import Scope

LINE_LISTS = ("sessions", "agents", "roles", "tags", "sources", "exclude_sessions", "exclude_recent", "code_languages")
LINE_FILTERS = ("tenant", "since", "until", "as_of", "query_context", "where", *LINE_LISTS)
"""What a line of --queries may name beside its query; other fields, such as evidence, are not looked at."""
ASKED_WITH_OPTIONS = frozenset(
    "k wide deadline_ms explain why min_score recency_weight half_life_days neighbours fold reranker embedder".split()
)
"""What only options say, for all lines alike."""
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
        'scope-recall recall "why did the build fail?" --tenant acme --where git.branch=main --code-language python',
        'scope-recall recall "and the second one?" --tenant acme --query-context "Which proxies are there? Two."',
        "scope-recall recall --queries questions.jsonl -k 10",
    ),
)
@click.argument("query", required=False)
@click.option("--queries", type=click.Path(path_type=Path), help='JSON lines {"query_id", "query", "tenant"}.')
@click.option("--tenant", help="Whose memory to search. Required with QUERY.")
@click.option("--session", "sessions", multiple=True, help="Only these sessions.")
@click.option("--exclude-session", "exclude_sessions", multiple=True, help="None of these sessions.")
@click.option("--exclude-recent", multiple=True, metavar="SESSION:N", help="Not the N newest turns of a session.")
@click.option("--query-context", metavar="TEXT", help="What was said before the question; the end of it is read.")
@click.option("--agent", "agents", multiple=True, help="Only these agents' turns.")
@click.option("--role", "roles", multiple=True, type=click.Choice(get_args(Role)), help="Only these roles.")
@click.option("--tag", "tags", multiple=True, help="Only turns with one of these tags.")
@click.option("--source", "sources", multiple=True, help="Only turns from these sources.")
@click.option("--where", multiple=True, metavar="KEY=VALUE", help="Only turns whose metadata says so: git.branch=main.")
@click.option("--code-language", "code_languages", multiple=True, help="Only code in these languages: python.")
@click.option("--since", help="Only turns said at or after this time: 2026-01-31 (UTC) or 2026-01-31T09:00:00+08:00.")
@click.option("--until", help="Only turns said before this time.")
@click.option("--min-score", type=click.FloatRange(0, 1), help="Leave out what is less sure to answer; 0.05 to 0.2.")
@click.option("--as-of", help="Answer as at this time: nothing said later is seen, ages count from it.")
@click.option("--recency-weight", type=click.FloatRange(0, 1), help="How much being recent counts; 0.3 is usual.")
@click.option("--half-life", "half_life_days", type=float, help="Days after which being recent counts half.")
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
@click.option("--why", metavar="SESSION:TURN", help="Say what became of this turn: why it is no hit.")
def recall(
    terminal: Terminal,
    query: str | None,
    queries: Path | None,
    k: int,
    explain: bool,
    no_fold: bool,
    as_of: str | None,
    why: str | None,
    query_context: str | None,
    exclude_recent: tuple[str, ...],
    **filters: Any,
) -> int:
    """Recall the turns that answer QUERY, within one tenant, with a block of context for a prompt.

    It reads the stores only: no Redis and no running system is needed.
    """
    settings = terminal.settings
    if (query is None) == (queries is None):
        raise UsageError("recall: give a QUERY or --queries FILE, one of them")
    sizes = sizes_of(settings, k) | {"explain": explain, "fold": not no_fold}
    if queries is not None:
        others = {"as_of": as_of, "why": why, "query_context": query_context, "exclude_recent": exclude_recent}
        given = sorted(name for name, value in {**filters, **others}.items() if value)
        if given:
            raise UsageError(f"recall --queries: {', '.join(given)} cannot be given here; each line names its own")
        answer_file(terminal, queries, sizes)
        return DONE
    if not filters["tenant"]:
        raise UsageError("recall: --tenant is missing; it names whose memory to search")
    filters["where"] = tuple(map(parse_condition, filters["where"]))
    moments: dict[str, Any] = {"as_of": moment("as-of", as_of), "exclude_recent": parse_recent(exclude_recent)}
    scope = scope_of(**filters)
    question = Question(query or "", scope, **sizes, **moments, why=place_of(why), query_context=query_context or "")
    with closing(Recaller.open(settings)) as recaller:
        answer = recaller.recall(question)
    if terminal.json:
        terminal.emit(answer.as_json())
    else:
        show(terminal, answer)
    return DONE


def sizes_of(settings: Settings, k: int) -> dict[str, Any]:
    """What the settings say of a question."""
    return {
        "k": k,
        "wide": max(settings.wide, k),
        "deadline_ms": settings.deadline_ms,
        "min_score": settings.min_score,
        "recency": Recency(settings.recency_weight, settings.half_life_days),
        "neighbours": settings.neighbours,
        "query_context_weight": settings.query_context_weight,
    }


def answer_file(terminal: Terminal, queries: Path, sizes: dict[str, Any]) -> None:
    """One line for each question of the file, once all of them are known to be askable."""
    questions = list(read_questions(queries))
    kept = LINE_FIELDS + (AROUND_FIELDS if sizes["neighbours"] else ())
    with closing(Recaller.open(terminal.settings)) as recaller:
        for query_id, asked in questions:
            answer = recaller.recall(replace(asked, **sizes)).as_json()
            terminal.emit({"query_id": query_id, **{name: answer[name] for name in kept}})


def scope_of(*, since: str | None, until: str | None, **filters: Any) -> Scope:
    """A scope from the command's options."""
    return Scope(since=moment("since", since), until=moment("until", until), **filters)


def place_of(text: str | None) -> Place | None:
    """SESSION:TURN; the session may hold colons itself. Raises `UsageError`."""
    if text is None:
        return None
    session, colon, index = text.rpartition(":")
    if not (colon and session and index.isascii() and index.isdigit()):
        raise UsageError(f"--why {text!r}: SESSION:TURN is due, such as standup-1:4")
    return session, int(index)


def read_questions(path: Path) -> Iterator[tuple[str, Question]]:
    """(query_id, question) of each line. Raises `UsageError` naming the line and what is wrong with it."""
    for number, row in read_rows(path):
        try:
            query_id, query = row["query_id"], row["query"]
            scope, recent = _scope_of_line(row)
            as_of = moment("as-of", _text_of_line(row, "as_of", "a time as text"))
            before = _text_of_line(row, "query_context", "a text") or ""
            question = Question(query, scope, as_of=as_of, exclude_recent=recent, query_context=before)
        except KeyError as error:
            raise UsageError(f"{path}, line {number}: {error.args[0]} is missing") from None
        except UsageError as error:
            raise UsageError(f"{path}, line {number}: {error}") from None
        yield str(query_id), question


def _scope_of_line(row: dict[str, Any]) -> tuple[Scope, tuple[Recent, ...]]:
    """The scope that a line names, and what is too recent for it.

    A field that is nearly a filter's name is refused: the answer would be too wide.
    """
    for name in row:
        if name in ASKED_WITH_OPTIONS:
            raise UsageError(f"{name}: not a field of a line: give it as an option, for all questions")
        near = difflib.get_close_matches(name, [*LINE_FILTERS, *ASKED_WITH_OPTIONS], n=1, cutoff=NEARLY)
        if near and name not in LINE_FILTERS:
            raise UsageError(f"{name}: unknown field; did you mean {near[0]}?")
    if not isinstance(row["query"], str) or not isinstance(row["tenant"], str):
        raise UsageError("query and tenant are strings")
    times = {name: _text_of_line(row, name, "a time as text") for name in ("since", "until")}
    lists = {}
    for name in LINE_LISTS:
        values = row.get(name) or ()
        if not isinstance(values, (list, tuple)) or not all(isinstance(value, str) for value in values):
            raise UsageError(f"{name}: a list of strings is due, got {values!r}")
        lists[name] = tuple(values)
    unknown = sorted(set(lists["roles"]) - set(get_args(Role)))
    if unknown:
        raise UsageError(f"roles: there is no role {unknown[0]!r}; there are {', '.join(get_args(Role))}")
    recent = parse_recent(lists.pop("exclude_recent"))
    where = conditions_of({} if row.get("where") is None else row["where"])
    return scope_of(tenant=row["tenant"], since=times["since"], until=times["until"], where=where, **lists), recent


def _text_of_line(row: dict[str, Any], name: str, due: str) -> str | None:
    value = row.get(name)
    if not isinstance(value, str | None):
        raise UsageError(f"{name}: {due} is due, got {value!r}")
    return value


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
            table.add_row("", "", "", "", "", _parts(hit.explain), style="dim")
    if answer.hits:
        terminal.out.print(table)
    if answer.context:
        terminal.out.print(Panel(plain(answer.context), title="context block", title_align="left"))
    used = f"embedder {answer.embedder}, reranker {answer.reranker or 'none'}"
    stages = ", ".join(f"{name} {value:.0f} ms" for name, value in answer.timings_ms.items())
    terminal.say(f"{used}; {stages}", style="dim")
    for one in answer.why:
        where = plain(f"{one.session_id} turn {one.turn_index}" + (f" ({one.role})" if one.role else ""))
        terminal.say(f"{where}: {one.verdict}: {plain(one.reason)}")
        if one.parts:
            terminal.say(f"  {_parts(one.parts)}", style="dim")
    for line in answer.degraded:
        terminal.note(f"degraded: {line}", style="yellow")


def _parts(parts: dict[str, Any]) -> str:
    return ", ".join(
        f"{name} {_number(part['raw'])} → {part['scaled']:.2f}" + (f" (rank {part['rank']})" if part["rank"] else "")
        for name, part in parts.items()
    )


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:.3f}"
