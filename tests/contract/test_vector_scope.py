"""What a scope lets a search see, on real LanceDB tables: exactly what its plain reading says."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vector_rows import SPACE, ids, row, unit_vector
from workers.stores.facts import facts_of, fingerprints
from workers.stores.lance_schema import VectorRow
from workers.stores.scope import Scope, ScopedTurn, in_scope
from workers.stores.vectors import VectorStore

pytestmark = pytest.mark.contract

ODD = [
    "t",
    "o'brien",
    "x' OR '1'='1",
    "%",
    "a\\",
    "\\'",
    "t--",
    "龙" * 128,
    "é",
    "e\u0301",
    "null",
    "'",
    '"',
    "t ",
    "/app",
    "/apple",
]


METADATA: list[dict[str, object]] = [
    {},
    {"git": {"branch": "o'brien"}, "n": 3},
    {"git.branch": "t", "n": "3", "ok": True},
    {"n": [3, 4.0, None], "git": [{"branch": "t"}, {"branch": "龙" * 5000}]},
    {"ok": False, "": {"": "x' OR '1'='1"}},
]
"""A row has the one at its index, modulo."""


@pytest.fixture(scope="module")
def scoped(tmp_path_factory: pytest.TempPathFactory) -> tuple[VectorStore, list[VectorRow]]:
    store = VectorStore(str(tmp_path_factory.mktemp("scoped")))
    rng = np.random.default_rng(7)

    def pick(*values: object) -> object:
        return values[rng.integers(len(values))]

    rows = [
        row(
            number,
            tenant=ODD[number % len(ODD)],
            session_id=pick(*ODD[:5]),
            agent_id=pick(None, *ODD[:3]),
            role=pick("user", "assistant", "tool"),
            source=pick("push", "o'brien"),
            tags=tuple(dict.fromkeys(str(pick(*ODD)) for _ in range(rng.integers(3)))),
            created_at_us=pick(None, 0, 1_000_000, 2_000_000),
            language=pick(None, "python", "o'brien"),
            facts=fingerprints(facts_of(METADATA[number % len(METADATA)])),
        )
        for number in range(400)
    ]
    store.upsert(SPACE, rows)
    return store, rows


def few(values: list[str]) -> st.SearchStrategy[tuple[str, ...]]:
    return st.one_of(
        st.just(()), st.lists(st.sampled_from(values) | st.text(min_size=1, max_size=5), max_size=3).map(tuple)
    )


CONDITIONS = st.tuples(
    st.sampled_from(["git.branch", "n", "ok", "."]),
    st.sampled_from(["3", "3.0", "4", "t", "o'brien", "龙" * 5000, "true", "null", "x' OR '1'='1"]),
)
MICROSECONDS = st.integers(-1, 2_000_001)
MOMENTS = st.none() | st.integers(0, 3).map(lambda second: datetime.fromtimestamp(second, UTC))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    tenant=st.sampled_from(ODD) | st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=9),
    sessions=few(ODD[:6]),
    agents=few(ODD[:4]),
    roles=few(["user", "tool"]),
    tags=few(ODD),
    sources=few(["push", "o'brien"]),
    exclude_sessions=few(ODD[:6]),
    before_turns=st.lists(st.tuples(st.sampled_from(ODD[:6]), st.integers(0, 400)), max_size=3).map(tuple),
    since=MOMENTS,
    within=st.lists(st.tuples(MICROSECONDS, MICROSECONDS), max_size=3).map(tuple),
    where=st.lists(CONDITIONS, max_size=3).map(tuple),
    code_languages=few(["Python", "o'brien"]),
)
def test_a_search_sees_exactly_what_is_in_scope(
    scoped: tuple[VectorStore, list[VectorRow]], since: datetime | None, **fields: object
) -> None:
    store, rows = scoped
    until = None if since is None else since + timedelta(seconds=1)
    scope = Scope(**fields, since=since, until=until)  # type: ignore[arg-type]
    expected = {item.vector_id for item in rows if in_scope(as_turn(item), scope)}
    assert set(ids(store.dense(SPACE, unit_vector(1), scope, len(rows)))) == expected
    assert set(ids(store.lexical(SPACE, "hello", scope, len(rows)))) == expected


def as_turn(item: VectorRow) -> ScopedTurn:
    return ScopedTurn(
        *(item.tenant, item.session_id, item.agent_id, item.role, item.source, item.tags),
        created_at_us=item.created_at_us,
        turn_index=item.turn_index,
        metadata=json.dumps(METADATA[item.turn_index % len(METADATA)]),
        code_languages=(item.language,) if item.language else (),
    )


@pytest.mark.parametrize("tenant", ODD)
def test_an_odd_tenant_sees_its_own_rows_only(scoped: tuple[VectorStore, list[VectorRow]], tenant: str) -> None:
    store, rows = scoped
    found = ids(store.dense(SPACE, unit_vector(1), Scope(tenant), len(rows)))
    assert sorted(found) == sorted(item.vector_id for item in rows if item.tenant == tenant)


def test_a_scope_of_thousands_of_sessions_can_be_searched(scoped: tuple[VectorStore, list[VectorRow]]) -> None:
    store, _ = scoped
    scope = Scope("t", sessions=tuple(f"s{number}" for number in range(5_000)))
    assert store.lexical(SPACE, "hello", scope, 5) == []
