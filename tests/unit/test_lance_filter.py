"""Filters as text. That they select what a scope means is proven on LanceDB, in the contract suite."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from producers.errors import UsageError
from workers.stores.lance_filter import any_of, quoted, scope_filter
from workers.stores.scope import Scope

LITERAL = re.compile(r"'(?:[^']|'')*'", re.DOTALL)


@given(st.text(st.characters(exclude_categories=("Cs",))))
def test_a_quoted_value_is_one_literal_that_reads_back_as_the_value(value: str) -> None:
    literal = quoted(value)
    assert LITERAL.fullmatch(literal)
    assert literal[1:-1].replace("''", "'") == value


def test_a_lone_surrogate_is_refused_with_its_position() -> None:
    with pytest.raises(UsageError, match=r"'ab\\ud800'.*position 2"):
        quoted("ab\ud800")


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([], "false"),
        (["a"], "role = 'a'"),
        (["a", "a"], "role = 'a'"),
        (["a", "o'brien"], "role IN ('a', 'o''brien')"),
    ],
)
def test_no_value_matches_nothing_and_repeats_count_once(values: list[str], expected: str) -> None:
    assert any_of("role", values) == expected


@given(
    tenant=st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=20),
    names=st.lists(st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=10), max_size=3),
    index=st.integers(0, 2**62),
)
def test_no_value_of_a_scope_reaches_the_filter_outside_a_literal(tenant: str, names: list[str], index: int) -> None:
    few = tuple(names)
    bounds = tuple((name, index) for name in names)
    scope = Scope(tenant, sessions=few, agents=few, tags=few, sources=few, exclude_sessions=few, before_turns=bounds)
    scope = replace(scope, where=tuple(("k" + name, name) for name in names), code_languages=few)
    outside = LITERAL.sub("?", scope_filter(scope))
    assert set(re.findall(r"[A-Za-z_]+", outside)) <= {
        *("tenant", "session_id", "agent_id", "source", "tags", "turn_index", "facts", "language"),
        *("AND", "NOT", "IN", "array_has_any", "make_array", "IS", "NULL", "OR"),
    }
    assert outside.startswith("tenant = ?")
    assert outside.count(f"NOT (session_id = ? AND turn_index >= {index})") == len(names)


def test_times_are_a_half_open_range_of_microseconds() -> None:
    scope = Scope("t", since=datetime(2026, 1, 1, tzinfo=UTC), until=datetime(2026, 1, 2, tzinfo=UTC))
    assert scope_filter(scope) == (
        "tenant = 't' AND created_at_us >= 1767225600000000 AND created_at_us < 1767312000000000"
    )


@pytest.mark.parametrize("name", ["sessions", "agents", "roles", "tags", "sources", "exclude_sessions"])
def test_an_empty_value_of_a_filter_is_refused_by_name(name: str) -> None:
    with pytest.raises(UsageError, match=f"{name}: an empty value"):
        Scope("t", **{name: ("s", "")})
