"""Reconcile over real stores: whatever rows differ, the vector table ends as the catalog says."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import sqlalchemy as sa
from bytes_left import holding
from reconciling import TURNS, active, ask, run, said, small_system, table_of

from producers.errors import ModelError, NotReady
from producers.settings import Settings
from query.answer import Answer
from query.question import Question
from query.recall import Recaller
from spaced import Spaced, asked
from spaced import said as spaced_turn
from stepped import Stepped
from workers.embedding.hashing import HashingEmbedder
from workers.maintenance import forget as forgetting
from workers.maintenance import recomputing
from workers.maintenance import reconcile as job
from workers.maintenance.forget import forget
from workers.maintenance.lease import JobLease
from workers.maintenance.run import run_job
from workers.status import gather_status
from workers.stores.catalog import Catalog
from workers.stores.lance_connection import LanceConnection
from workers.stores.scope import Scope
from workers.stores.selection import Selection
from workers.stores.vectors import VectorStore

pytestmark = pytest.mark.integration


@pytest.fixture
def system(shared_settings: Settings) -> Stepped:
    return small_system(shared_settings)


def test_stores_that_agree_are_left_as_they_are_and_a_sample_of_vectors_is_compared(system: Stepped) -> None:
    report = run(system)
    assert report.outcome == "nothing"
    assert report.before == {"chunks": 72, "rows": 72, "missing": 0, "surplus": 0, "doubled": 0}
    assert report.after["sampled"] > 0
    assert report.after["lowest_cosine"] >= 0.999


def test_rows_that_are_there_twice_or_without_a_chunk_go_and_one_of_each_stays(system: Stepped) -> None:
    space = active(system.settings).space
    lance = LanceConnection(system.settings.vectors_location)

    def spoil(table: Any) -> None:
        rows = table.search().limit(None).to_arrow()
        table.add(rows.slice(0, 5))
        strangers = rows.slice(5, 4)
        names = [f"{n:032x}" for n in (0, 1, (1 << 128) - 1, 1 << 127)]
        at = strangers.schema.get_field_index("vector_id")
        table.add(strangers.set_column(at, strangers.schema.field(at), [names]))

    lance.write(space, spoil)
    assert VectorStore(system.settings.vectors_location).count(space) == 72 + 5 + 4
    report = run(system)
    assert (report.after["deleted"], report.after["undoubled"], report.after["embedded"]) == (4, 5, 0)
    assert system.counts() == (TURNS, 72, 72)


def test_ranges_of_few_keys_find_the_same(system: Stepped, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job, "RANGE_KEYS", 5)
    monkeypatch.setattr(job, "DELETED_AT_ONCE", 3)
    monkeypatch.setattr(job, "BATCH", 4)
    space = active(system.settings).space
    vectors = VectorStore(system.settings.vectors_location)
    gone = sorted(vectors.keys(space))[::3]
    LanceConnection(system.settings.vectors_location).write(
        space, lambda table: table.delete(f"vector_id IN ({', '.join(map(repr, gone))})")
    )
    assert run(system).after["embedded"] == len(gone)
    assert system.counts() == (TURNS, 72, 72)


def test_a_pending_turn_of_an_interrupted_write_is_completed(system: Stepped) -> None:
    catalog = Catalog.open(system.settings.catalog_location)
    with catalog._engine.begin() as connection:
        connection.execute(sa.text("UPDATE turns SET state = 'pending' WHERE turn_index < 10"))
    space = active(system.settings).space
    some = "SELECT vector_id FROM chunks JOIN turns USING (turn_key) WHERE turn_index IN (0, 5) AND chunk_index = 0"
    with catalog._engine.connect() as connection:
        gone = list(connection.execute(sa.text(some)).scalars())
    catalog.close()
    LanceConnection(system.settings.vectors_location).write(
        space, lambda table: table.delete(f"vector_id IN ({', '.join(map(repr, gone))})")
    )
    report = run(system)
    assert (report.after["embedded"], report.after["marked"]) == (2, 10)
    assert system.counts() == (TURNS, 72, 72)


def test_where_a_sample_has_a_wrong_vector_all_are_compared(system: Stepped, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job, "SAMPLE_PLACES", 1)
    monkeypatch.setattr(job, "SAMPLE", 2)
    monkeypatch.setattr(job, "BATCH", 10)
    space = active(system.settings).space
    wrong = [1.0] + [0.0] * (space.dimension - 1)
    LanceConnection(system.settings.vectors_location).write(
        space, lambda table: table.update(values={"vector": wrong}, where="vector_id != '0'")
    )
    assert run(system).after["differing"] >= 71  # one may be as it should be by chance
    again = run(system)
    assert (again.outcome, again.after["lowest_cosine"] >= 0.999) == ("nothing", True)
    assert system.counts() == (TURNS, 72, 72)


def test_a_vector_that_another_model_made_is_computed_again(system: Stepped, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job, "SAMPLE", 16 * 72)  # all of them, whatever places are chosen
    monkeypatch.setattr(job.random, "randrange", lambda _: 0)
    space = active(system.settings).space
    vectors = VectorStore(system.settings.vectors_location)
    one, two = sorted(vectors.keys(space))[:2]
    wrong = [1.0] + [0.0] * (space.dimension - 1)
    LanceConnection(system.settings.vectors_location).write(
        space, lambda table: table.update(where=f"vector_id IN ('{one}', '{two}')", values={"vector": wrong})
    )
    report = run(system)
    assert report.after["differing"] == 2
    assert report.after["lowest_cosine"] < 0.9
    assert run(system).outcome == "nothing"
    stored = vectors.vectors_of(space, [one])[one]
    assert float(np.linalg.norm(stored)) == pytest.approx(1.0, abs=1e-4)


@pytest.mark.parametrize("what", ["revise", "forget"])
def test_a_revision_or_a_forget_that_comes_while_vectors_are_computed_wins(
    system: Stepped, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    shutil.rmtree(table_of(system.settings))
    embed = HashingEmbedder.embed_passages
    done: list[bool] = []

    def meanwhile(self: HashingEmbedder, texts: Sequence[str]) -> np.ndarray:
        if not done:
            done.append(True)
            if what == "revise":
                system.push(said(7, "revised: the merlin{0}basalt"))
                system.settle()
            else:
                assert forget(system.settings, Selection("acme")).verified
        return embed(self, texts)

    monkeypatch.setattr(HashingEmbedder, "embed_passages", meanwhile)
    run(system)
    monkeypatch.undo()
    if what == "revise":
        assert system.counts() == (TURNS, 72, 72)
        assert [hit for hit in ask(system.settings).hits if "kestrel7quartz" in hit.content] == []
    else:
        assert system.counts() == (0, 0, 0)
        assert holding(system.settings, "kestrel7quartz") == []


def test_an_interrupted_forget_is_finished(system: Stepped, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(forgetting.Erasure, "finish", lambda self, *, verify: [])
        forget(system.settings, Selection("acme"))
    assert holding(system.settings, "kestrel7quartz")
    assert "forgets finished: 1" in (run(system).did or "")
    assert holding(system.settings, "kestrel7quartz") == []
    assert system.counts() == (0, 0, 0)


def test_without_the_model_the_rest_is_done_and_the_run_says_what_is_left(
    system: Stepped, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> HashingEmbedder:
        raise ModelError("embedder hashing: not there")

    shutil.rmtree(table_of(system.settings))
    with monkeypatch.context() as patched:
        patched.setattr(recomputing, "load_model", refuse)
        with pytest.raises(NotReady, match="vectors could not be computed, and the next run goes on: embedder hashing"):
            run(system)
    assert any("job reconcile failed" in line for line in gather_status(system.settings)["degraded"])
    run(system)
    assert system.counts() == (TURNS, 72, 72)


def test_a_run_that_has_lost_its_lease_stops(system: Stepped, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.rmtree(table_of(system.settings))
    with monkeypatch.context() as patched:
        patched.setattr(JobLease, "held", property(lambda self: False))
        with pytest.raises(NotReady, match="its lease was lost"):
            run(system)
    assert VectorStore(system.settings.vectors_location).count(active(system.settings).space) is None


@pytest.mark.parametrize("indexed", [False, True])
def test_rows_of_an_older_table_get_their_facts_and_until_then_recall_says_so(
    shared_settings: Settings, monkeypatch: pytest.MonkeyPatch, indexed: bool
) -> None:
    monkeypatch.setattr(job, "RANGE_KEYS", 7)
    monkeypatch.setattr(job, "FACTS_AT_ONCE", 2)
    spaced = Spaced(shared_settings)
    spaced.store(*(spaced_turn(number, metadata={"n": {"is": number}}) for number in range(20)))
    lance = LanceConnection(shared_settings.vectors_location)
    if indexed:
        spaced.vectors.build_index(spaced.active, "vector_id", "btree")
    lance.write(spaced.active, lambda table: table.drop_columns(["facts"]))

    def find(*numbers: int) -> Answer:
        scope = Scope("t", where=tuple(("n.is", str(number)) for number in numbers))
        return Recaller.open(shared_settings).recall(Question("kestrel quartz", scope, k=10))

    answer = find(3, 11)
    assert {hit.turn_index for hit in answer.hits} == {3, 11}
    assert "where: 20 rows of the vector table are from before" in answer.degraded[0]
    assert asked(spaced).degraded == [], "who does not ask for it is not told"
    spaced.store(spaced_turn(20, metadata={"n": {"is": 20}}))
    report = run_job("reconcile", shared_settings, spaced.client)
    assert (report.after["described"], report.after["embedded"]) == (20, 0)
    assert "rows that recall can now filter by metadata: 20" in (report.did or "")
    answer = find(3, 11, 20)
    assert ({hit.turn_index for hit in answer.hits}, answer.degraded) == ({3, 11, 20}, [])
    assert run_job("reconcile", shared_settings, spaced.client).outcome == "nothing"
    assert spaced.exact(spaced.active) == 21


def test_a_catalog_without_a_space_has_nothing_to_compare(shared_settings: Settings) -> None:
    from producers.connection import connect

    with connect(shared_settings) as client:
        assert run_job("reconcile", shared_settings, client).outcome == "nothing"


def test_the_tables_of_both_spaces_are_built_again_while_a_model_is_changed(shared_settings: Settings) -> None:
    spaced = Spaced(shared_settings)
    spaced.store(*(spaced_turn(number) for number in range(20)))
    old, new = spaced.active, spaced.begin("hashing:128")
    assert "switched recall" in (spaced.run() or "")
    shutil.rmtree(shared_settings.vectors_location)
    report = run_job("reconcile", shared_settings, spaced.client)
    assert report.after["embedded"] == 40
    assert (spaced.exact(old), spaced.exact(new)) == (20, 20)
    assert asked(spaced, "number7").hits[0].turn_index == 7
