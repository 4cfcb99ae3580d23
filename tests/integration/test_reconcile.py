"""Reconcile over real stores: whatever the vector table has become, it ends as the catalog says."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sqlalchemy as sa
from bytes_left import holding

from producers.errors import ModelError, NotReady, StoreDamaged
from producers.settings import Settings
from query.recall import Answer, Question, Recaller
from stepped import Stepped, turn
from workers.embedding.hashing import HashingEmbedder
from workers.maintenance import forget as forgetting
from workers.maintenance import reconcile as job
from workers.maintenance import reembedding
from workers.maintenance.forget import forget
from workers.maintenance.lease import JobLease
from workers.maintenance.run import RunReport, run_job
from workers.status import gather_status
from workers.stores.catalog import Catalog
from workers.stores.lance_connection import LanceConnection
from workers.stores.scope import Scope
from workers.stores.selection import Selection
from workers.stores.spaces import StoredSpace
from workers.stores.vectors import VectorStore

pytestmark = pytest.mark.integration

TURNS = 60
WORDS = "the kestrel{0}quartz flew over 证书{0}号，过期了"


@pytest.fixture
def system(shared_settings: Settings) -> Stepped:
    """Turns of one and of three chunks are stored, in several fragments."""
    settings = shared_settings.model_copy(update={"lease": 1.0, "batch_wait": 0.0, "chunk_tokens": 64})
    stepped = Stepped(settings)
    for first in range(0, TURNS, 20):
        stepped.store(*(said(n) for n in range(first, first + 20)))
    assert stepped.counts() == (TURNS, TURNS + 6 * 2, TURNS + 6 * 2)
    return stepped


def said(number: int, text: str = WORDS) -> Any:
    long = 3 if number % 10 == 0 else 1
    return turn("\n\n".join([text.format(number) + " and on" * 25] * long), number, tenant="acme")


def run(system: Stepped) -> RunReport:
    return run_job("reconcile", system.settings, system.client)


def table_of(settings: Settings) -> Path:
    (folder,) = Path(settings.vectors_location).iterdir()
    return folder


def active(settings: Settings) -> StoredSpace:
    catalog = Catalog.open(settings.catalog_location)
    found = catalog.spaces.active()
    catalog.close()
    assert found is not None
    return found


def ask(settings: Settings, number: int = 7) -> Answer:
    return Recaller.open(settings).recall(Question(f"kestrel{number}quartz", Scope("acme")))


def test_stores_that_agree_are_left_as_they_are_and_a_sample_of_vectors_is_compared(system: Stepped) -> None:
    report = run(system)
    assert report.outcome == "nothing"
    assert report.before == {"chunks": 72, "rows": 72, "missing": 0, "surplus": 0, "doubled": 0}
    assert report.after["sampled"] > 0
    assert report.after["lowest_cosine"] >= 0.999


def test_a_deleted_table_is_told_at_once_and_built_again_and_open_handles_go_on(system: Stepped) -> None:
    serving = Recaller.open(system.settings)
    assert serving.recall(Question("kestrel7quartz", Scope("acme"))).degraded == []
    shutil.rmtree(table_of(system.settings))
    answer = serving.recall(Question("kestrel7quartz", Scope("acme")))
    assert answer.hits == []
    assert "the vector table is gone, so none of 72 chunks is found" in answer.degraded[0]
    assert ask(system.settings).degraded == answer.degraded
    assert any("table is gone" in line for line in gather_status(system.settings)["degraded"])
    # The worker holds the lost table open; what it stores now is found, and that the rest is not is said all the same.
    system.push(said(TURNS + 1))
    system.settle()
    answer = serving.recall(Question(f"kestrel{TURNS + 1}quartz", Scope("acme")))
    assert answer.hits[0].turn_index == TURNS + 1
    assert "the vector table has 1 rows for 73 chunks" in answer.degraded[0]
    assert any("1 rows for 73 chunks" in line for line in gather_status(system.settings)["degraded"])
    report = run(system)
    assert (report.before["missing"], report.after["embedded"]) == (72, 72)
    assert system.counts() == (TURNS + 1, 73, 73)
    answer = serving.recall(Question("kestrel7quartz", Scope("acme")))
    assert (answer.hits[0].turn_index, answer.degraded) == (7, [])
    assert not any("vector table" in line for line in gather_status(system.settings)["degraded"])
    vectors = VectorStore(system.settings.vectors_location)
    assert "terms" in vectors.indexed_columns(active(system.settings).space)
    assert vectors.lexical(active(system.settings).space, "kestrel7quartz", Scope("acme"), 1)
    system.push(said(TURNS + 2))
    system.settle()
    assert system.counts() == (TURNS + 2, 74, 74)
    assert run(system).outcome == "nothing"


def test_a_worker_builds_the_full_text_index_of_a_table_that_it_had_to_make_again(system: Stepped) -> None:
    shutil.rmtree(table_of(system.settings))
    system.push(said(TURNS + 1))
    system.settle()
    assert "terms" in VectorStore(system.settings.vectors_location).indexed_columns(active(system.settings).space)


def _truncate(name: str, table: Path) -> None:
    for path in (table / name).iterdir():
        with path.open("r+b") as file:
            file.truncate(path.stat().st_size // 2)


@pytest.mark.parametrize(
    "damage",
    [
        lambda table: shutil.rmtree(table / "data"),
        lambda table: shutil.rmtree(table / "_versions"),
        lambda table: next((table / "data").iterdir()).unlink(),
        lambda table: _truncate("data", table),
        lambda table: _truncate("_versions", table),
        lambda table: [shutil.rmtree(table), table.mkdir()],
    ],
    ids=["no data", "no versions", "a file less", "cut data", "cut versions", "empty"],
)
def test_a_damaged_table_is_told_and_built_again(system: Stepped, damage: Callable[[Path], object]) -> None:
    damage(table_of(system.settings))
    try:
        said_of_it = ask(system.settings).degraded
    except StoreDamaged as no_leg_is_left:
        said_of_it = [str(no_leg_is_left)]
    assert any("`scope-recall maintain run reconcile`" in line for line in said_of_it)
    report = run(system)
    assert report.after["embedded"] == 72
    assert system.counts() == (TURNS, 72, 72)
    assert (ask(system.settings).hits[0].turn_index, ask(system.settings).degraded) == (7, [])
    system.push(said(TURNS + 1))
    system.settle()
    assert system.counts() == (TURNS + 1, 73, 73)


def test_lost_indexes_are_built_again_and_no_vector_is_computed(
    system: Stepped, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job, "SAMPLE_PLACES", 0)
    monkeypatch.setattr(job, "SAMPLE", 0)
    shutil.rmtree(table_of(system.settings) / "_indices")
    report = run(system)
    assert (report.after["embedded"], report.after["discarded"], report.after["reindexed"]) == (0, 0, 1)
    assert system.counts() == (TURNS, 72, 72)
    assert (ask(system.settings).hits[0].turn_index, ask(system.settings).degraded) == (7, [])


def test_an_older_copy_that_is_put_back_is_brought_up_to_date(system: Stepped, tmp_path: Path) -> None:
    table = table_of(system.settings)
    system.store(*(turn(f"only heron{n}basalt", n, tenant="o'brien") for n in range(5)))
    shutil.copytree(table, tmp_path / "copy")
    revised = [said(n, "revised: the merlin{0}basalt") for n in range(0, TURNS, 3)]
    system.push(*revised, *(said(n) for n in range(TURNS, TURNS + 20)))
    system.settle()
    assert forget(system.settings, Selection("o'brien")).verified
    wanted = system.counts()
    shutil.rmtree(table)
    shutil.copytree(tmp_path / "copy", table)
    report = run(system)
    assert report.before["missing"] > 20
    assert report.before["surplus"] > 20
    assert system.counts() == wanted
    assert ask(system.settings, TURNS + 7).hits[0].turn_index == TURNS + 7
    assert [hit for hit in ask(system.settings, 9).hits if "kestrel9quartz" in hit.content] == []
    assert holding(system.settings, "heron3basalt") == [], "what was forgotten since the copy was made"
    assert run(system).outcome == "nothing"


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
    assert "finished 1 forgets" in (run(system).did or "")
    assert holding(system.settings, "kestrel7quartz") == []
    assert system.counts() == (0, 0, 0)


def test_without_the_model_the_rest_is_done_and_the_run_says_what_is_left(
    system: Stepped, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> HashingEmbedder:
        raise ModelError("embedder hashing: not there")

    shutil.rmtree(table_of(system.settings))
    with monkeypatch.context() as patched:
        patched.setattr(reembedding, "load_embedder", refuse)
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


def test_a_catalog_without_a_space_has_nothing_to_compare(shared_settings: Settings) -> None:
    from producers.connection import connect

    with connect(shared_settings) as client:
        assert run_job("reconcile", shared_settings, client).outcome == "nothing"
