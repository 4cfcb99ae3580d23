"""Lance filters: the only place where a value becomes part of an SQL text. Pure.

Every id passes `quoted`, so that a tenant named `x' OR '1'='1` selects exactly itself.
"""

from __future__ import annotations

from collections.abc import Iterable

from producers.errors import UsageError
from workers.stores.facts import facts_asked, fingerprints
from workers.stores.lance_schema import FACTS
from workers.stores.scope import Scope
from workers.stores.selection import Selection


def quoted(value: str) -> str:
    """`value` as an SQL string literal; a quote is doubled, nothing else is special to DataFusion's dialect.

    Raises `UsageError` for a lone surrogate, which is not text and cannot be stored either.
    """
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise UsageError(
            f"filter value {value!a}: holds a lone surrogate at position {error.start}, which is not text; remove it"
        ) from None
    return "'" + value.replace("'", "''") + "'"


def any_of(column: str, values: Iterable[str]) -> str:
    """`column` equals one of `values`; with no values nothing matches."""
    literals = [quoted(value) for value in dict.fromkeys(values)]
    if not literals:
        return "false"
    if len(literals) == 1:
        return f"{column} = {literals[0]}"
    return f"{column} IN ({', '.join(literals)})"


def scope_filter(scope: Scope, *, facts: bool = True) -> str:
    """The scope as a Lance filter that agrees with `workers.stores.scope.in_scope` on every row.

    A row whose value is NULL fails every comparison, as it must. Only of a row whose facts are not known yet, and of
    all in a table without them (`facts` false), `where` is left to the catalog.
    """
    clauses = [any_of("tenant", [scope.tenant])]
    for column, wanted in (
        ("session_id", scope.sessions),
        ("agent_id", scope.agents),
        ("role", scope.roles),
        ("source", scope.sources),
    ):
        if wanted:
            clauses.append(any_of(column, wanted))
    if scope.tags:
        clauses.append(f"array_has_any(tags, make_array({', '.join(map(quoted, scope.tags))}))")
    if scope.exclude_sessions:
        clauses.append(f"NOT ({any_of('session_id', scope.exclude_sessions)})")
    for session, index in scope.before_turns:
        clauses.append(f"NOT ({any_of('session_id', [session])} AND turn_index >= {index:d})")
    if scope.code_languages:
        clauses.append(any_of("language", [one.lower() for one in scope.code_languages]))
    if facts:
        clauses += [_one_fact(path, values) for path, values in facts_asked(scope.where).items()]
    if scope.since_us is not None:
        clauses.append(f"created_at_us >= {scope.since_us}")
    if scope.until_us is not None:
        clauses.append(f"created_at_us < {scope.until_us}")
    if scope.within:
        spans = (f"(created_at_us >= {first} AND created_at_us < {end})" for first, end in scope.within)
        clauses.append(f"({' OR '.join(spans)})")
    return " AND ".join(clauses)


def _one_fact(path: str, values: Iterable[str]) -> str:
    numbers = ", ".join(map(str, fingerprints({path: values})))
    return f"({FACTS} IS NULL OR array_has_any({FACTS}, make_array({numbers})))"


def selection_filter(selection: Selection, cutoff: str) -> str:
    """The rows of the selection that were accepted up to `cutoff`, as a Lance filter."""
    clauses = [any_of("tenant", [selection.tenant])]
    if selection.session is not None:
        clauses.append(any_of("session_id", [selection.session]))
    if selection.agent is not None:
        clauses.append(any_of("agent_id", [selection.agent]))
    if selection.before_us is not None and selection.before_order is not None:
        unsaid = f"created_at_us IS NULL AND entry_order < {quoted(selection.before_order)}"
        clauses.append(f"(created_at_us < {selection.before_us} OR ({unsaid}))")
    return " AND ".join([*clauses, f"entry_order <= {quoted(cutoff)}"])
