"""What the vector store finds, on real LanceDB tables."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest

from producers.errors import PoisonError
from vector_rows import SPACE, ids, row, unit_vector
from workers.stores.lance_indexes import index_config
from workers.stores.scope import Scope
from workers.stores.space import Space
from workers.stores.vectors import TERMS, VectorStore

pytestmark = pytest.mark.contract


@pytest.fixture
def store(tmp_path: Path) -> VectorStore:
    return VectorStore(str(tmp_path / "vectors"))


def test_reading_creates_nothing(tmp_path: Path) -> None:
    store = VectorStore(str(tmp_path / "vectors"))
    assert store.dense(SPACE, unit_vector(0), Scope("t"), 5) == []
    assert store.lexical(SPACE, "hello", Scope("t"), 5) == []
    assert store.vectors_of(SPACE, ["v0"]) == {}
    assert list(store.keys(SPACE)) == []
    assert store.statistics(SPACE).rows == 0
    store.delete_superseded(SPACE, [("k0", None)])
    assert list(tmp_path.iterdir()) == []


def test_an_upsert_repeated_changes_nothing_and_a_changed_row_is_replaced(store: VectorStore) -> None:
    rows = [row(number) for number in range(30)]
    store.upsert(SPACE, rows)
    store.upsert(SPACE, rows)
    store.upsert(SPACE, [row(3, agent_id="old"), row(3, agent_id="new")])
    assert sorted(store.keys(SPACE)) == sorted(f"v{number}" for number in range(30))
    assert ids(store.lexical(SPACE, "hello", Scope("t", agents=("new",)), 50)) == ["v3"]
    assert store.lexical(SPACE, "hello", Scope("t", agents=("old",)), 50) == []
    store.upsert(SPACE, [])
    assert store.statistics(SPACE).rows == 30


def test_rows_are_found_at_once_before_and_after_they_are_indexed(store: VectorStore) -> None:
    store.upsert(SPACE, [row(0, "the first zebra")])
    assert ids(store.lexical(SPACE, "zebra", Scope("t"), 5)) == ["v0"]
    store.upsert(SPACE, [row(1, "a second zebra, running"), row(2, "no stripes")])
    assert store.statistics(SPACE).unindexed_rows == 2
    for _ in range(2):
        assert sorted(ids(store.lexical(SPACE, "zebra", Scope("t"), 5))) == ["v0", "v1"]
        assert ids(store.lexical(SPACE, "runs", Scope("t"), 5)) == ["v1"]
        for number in range(3):
            assert ids(store.dense(SPACE, unit_vector(number), Scope("t"), 5))[0] == f"v{number}"
        store.optimize(SPACE, keep_versions=timedelta(minutes=1))
        assert store.statistics(SPACE).unindexed_rows == 0


def test_dense_scores_are_cosines_best_first(store: VectorStore) -> None:
    rows = [row(number) for number in range(60)]
    store.upsert(SPACE, rows)
    query = unit_vector(999)
    exact = sorted(((float(item.vector @ query), item.vector_id) for item in rows), reverse=True)
    found = store.dense(SPACE, query, Scope("t"), 50)
    assert ids(found) == [key for _, key in exact[:50]]
    assert [candidate.score for candidate in found] == pytest.approx([score for score, _ in exact[:50]], abs=1e-5)
    assert store.dense(SPACE, query, Scope("t"), 0) == []


TEXTS = [
    "我们在图书馆读了一本小说，名字叫三体。",
    "Set retry_after to 30 seconds.",
    "class RetryAfter(Exception): pass",
    "The bug was in src/app.py, line 7.",
    "昨天在 deploy.yaml 里改了副本数",
    "Der Größe nach sortiert, im Café",
    "привет, " + "длинноеслово" * 12,
    "nothing of the kind",
]


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("小说", [0]),
        ("哪本小说是在图书馆读的？", [0]),
        ("三体", [0]),
        ("retry_after", [1, 2]),
        ("RetryAfter", [2, 1]),
        ("retry", [2, 1]),
        ("src/app.py", [3]),
        ("app.py", [3]),
        ("deploy.yaml 副本", [4]),
        ("cafe", [5]),
        ("длинноеслово" * 12, [6]),
        ("what is the kind of it", [7]),
        ("tortoise", []),
    ],
)
def test_lexical_finds_words_and_identifiers_whole_or_in_part(
    texts: VectorStore, question: str, expected: list[int]
) -> None:
    found = ids(texts.lexical(SPACE, question, Scope("t"), 10))
    assert found[: len(expected)] == [f"v{number}" for number in expected]
    if not expected:
        assert found == []


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> VectorStore:
    store = VectorStore(str(tmp_path_factory.mktemp("texts")))
    store.upsert(SPACE, [row(number, text) for number, text in enumerate(TEXTS)])
    return store


@pytest.mark.parametrize(
    "question",
    ["", "   ", "!!! ？", '"', 'say "retry', "a AND (b", "*", "x:y^2", "\ud800", "\x00", "lost word " * 10_000],
)
def test_no_question_can_make_lexical_search_fail(texts: VectorStore, question: str) -> None:
    assert ids(texts.lexical(SPACE, question, Scope("t"), 10)) in ([], ["v2", "v1"])


def test_rows_of_superseded_contents_are_deleted_and_no_others(store: VectorStore) -> None:
    rows = [
        row(n, turn_key=key, content_hash=h) for n, (key, h) in enumerate(["aX", "aX", "aY", "bX", "bY", "cX", "dX"])
    ]
    store.upsert(SPACE, rows)
    store.delete_superseded(SPACE, [("a", "Y"), ("b", "X"), ("c", None)])
    assert sorted(store.keys(SPACE)) == ["v2", "v3", "v6"]
    store.delete_superseded(SPACE, [])
    assert store.statistics(SPACE).rows == 3


def test_vectors_come_back_exact_and_missing_ones_are_left_out(store: VectorStore) -> None:
    store.upsert(SPACE, [row(number) for number in range(40)])
    found = store.vectors_of(SPACE, [f"v{number}" for number in range(30)] + ["absent"])
    assert len(found) == 30
    assert all(np.array_equal(found[f"v{number}"], unit_vector(number)) for number in range(30))


@pytest.mark.parametrize("vector", [np.zeros(8), np.full(8, np.nan), np.ones(7)])
def test_a_vector_that_was_not_computed_is_refused(store: VectorStore, vector: np.ndarray) -> None:
    with pytest.raises(PoisonError, match="v1"):
        store.upsert(SPACE, [row(0), row(1, vector=vector.astype(np.float32))])
    assert store.statistics(SPACE).rows == 0


def test_a_reader_sees_what_another_store_committed_even_after_old_versions_went(tmp_path: Path) -> None:
    writer, reader = (VectorStore(str(tmp_path)) for _ in range(2))
    writer.upsert(SPACE, [row(0, "first zebra")])
    assert ids(reader.lexical(SPACE, "zebra", Scope("t"), 5)) == ["v0"]
    for number in range(1, 5):
        writer.upsert(SPACE, [row(number, "next zebra")])
        writer.optimize(SPACE, keep_versions=timedelta(milliseconds=1))
        assert len(reader.lexical(SPACE, "zebra", Scope("t"), 9)) == number + 1
        assert len(reader.dense(SPACE, unit_vector(0), Scope("t"), 9)) == number + 1


def test_two_spaces_never_meet(store: VectorStore) -> None:
    other = Space("other", 8, 64, 8)
    store.upsert(SPACE, [row(0)])
    store.upsert(other, [row(1)])
    assert list(store.keys(SPACE)) == ["v0"]
    assert list(store.keys(other)) == ["v1"]


def test_an_index_is_known_by_its_column_and_not_built_again_under_another_name(store: VectorStore) -> None:
    store.upsert(SPACE, [row(number) for number in range(10)])
    store._lance.write(SPACE, lambda table: table.drop_index("terms_idx"))
    store._lance.write(
        SPACE, lambda table: table.create_index(TERMS, config=index_config("full-text", 0, 8), name="other")
    )
    again = VectorStore(store._lance.location)
    again.upsert(SPACE, [row(number) for number in range(10, 20)])
    assert TERMS in again.indexed_columns(SPACE)
    names = again._lance.read(SPACE, lambda table: [index.name for index in table.list_indices()], [])
    assert names == ["other"]
    assert again.statistics(SPACE).indexed_at_us is not None
    assert len(again.lexical(SPACE, "hello", Scope("t"), 50)) == 20


def test_a_dropped_table_is_gone_from_the_disk_and_can_be_made_again(store: VectorStore, tmp_path: Path) -> None:
    store.drop(SPACE)
    assert list(tmp_path.iterdir()) == [], "dropping what is not there makes nothing"
    store.upsert(SPACE, [row(number) for number in range(3)])
    other = VectorStore(store.location)
    assert other.statistics(SPACE).rows == 3
    store.drop(SPACE)
    store.drop(SPACE)
    assert list((tmp_path / "vectors").iterdir()) == []
    assert other.dense(SPACE, unit_vector(0), Scope("t"), 5) == [], "also with a handle on it"
    store.upsert(SPACE, [row(7)])
    assert list(store.keys(SPACE)) == list(other.keys(SPACE)) == ["v7"]
    assert TERMS in store.indexed_columns(SPACE)


def test_equals_are_found_in_the_order_of_their_ids(store: VectorStore) -> None:
    rows = [row(number, "the same heron", vector=unit_vector(1)) for number in range(90)]
    for start in range(0, 90, 30):  # fragments of their own, the latest ids first
        store.upsert(SPACE, rows[60 - start : 90 - start])
    store.build_index(SPACE, TERMS, "full-text")
    lowest = sorted(one.vector_id for one in rows)
    for limit in (90, 100):
        assert ids(store.dense(SPACE, unit_vector(1), Scope("t"), limit)) == lowest[:limit]
        assert ids(store.lexical(SPACE, "heron", Scope("t"), limit)) == lowest[:limit]
