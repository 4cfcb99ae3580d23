"""A vector table that is lost, damaged or put back from an older copy: told, survived, and built again."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from bytes_left import holding
from reconciling import TURNS, active, ask, run, said, small_system, table_of

from producers.errors import StoreDamaged
from producers.settings import Settings
from query.question import Question
from query.recall import Recaller
from stepped import Stepped, turn
from workers.maintenance import reconcile as job
from workers.maintenance.forget import forget
from workers.status import gather_status
from workers.stores.scope import Scope
from workers.stores.selection import Selection
from workers.stores.vectors import VectorStore

pytestmark = pytest.mark.integration


@pytest.fixture
def system(shared_settings: Settings) -> Stepped:
    return small_system(shared_settings)


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


def _newest(table: Path) -> Path:
    """The newest version: they are numbered downwards."""
    return min((table / "_versions").glob("*.manifest"))


def _panics(path: Path) -> None:
    """Overwrite the second half of the file."""
    half = path.stat().st_size // 2
    path.write_bytes(path.read_bytes()[:half] + b"\xff" * half)


@pytest.mark.parametrize(
    "damage",
    [
        lambda table: shutil.rmtree(table / "data"),
        lambda table: shutil.rmtree(table / "_versions"),
        lambda table: next((table / "data").iterdir()).unlink(),
        lambda table: _truncate("data", table),
        lambda table: _truncate("_versions", table),
        lambda table: [shutil.rmtree(table), table.mkdir()],
        lambda table: _newest(table).write_bytes(b""),
        lambda table: _newest(table).write_bytes(_newest(table).read_bytes()[:-1]),
        lambda table: _newest(table).write_bytes(_newest(table).read_bytes()[:9]),
        lambda table: _panics(_newest(table)),
        lambda table: _newest(table).write_bytes(bytes(_newest(table).stat().st_size)),
    ],
    ids=[
        *("no data", "no versions", "a file less", "cut data", "cut versions", "empty"),
        *("no newest version", "newest version a byte less", "nine bytes of the newest version"),
        *("newest version makes LanceDB panic", "newest version is zeros"),
    ],
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


def test_without_its_largest_data_file_recall_and_status_say_what_is_damaged_and_what_mends_it(system: Stepped) -> None:
    assert not any("damaged" in line for line in gather_status(system.settings)["degraded"])
    max((table_of(system.settings) / "data").iterdir(), key=lambda path: path.stat().st_size).unlink()
    said = r"vector store .*, table .* is damaged: .*; `scope-recall maintain run reconcile` builds it anew"
    with pytest.raises(StoreDamaged, match=said):
        ask(system.settings)
    status = gather_status(system.settings)
    assert any(re.search(said, line) for line in status["degraded"])
    assert status["maintenance"]["reconcile"], "what the catalog says is told all the same"
    run(system)
    assert not any("damaged" in line for line in gather_status(system.settings)["degraded"])


@pytest.mark.parametrize("broken", ["vectors_of", "count", "without_facts"])
def test_a_file_that_only_a_later_look_needs_takes_no_answer_away(
    system: Stepped, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    def fail(*_: object) -> None:
        raise StoreDamaged("the table is damaged")

    system.store(
        *(turn(f"the heron{n}basalt flew", n, tenant="acme", metadata={"bird": "heron"}) for n in range(90, 92))
    )
    monkeypatch.setattr(VectorStore, broken, fail)
    answer = Recaller.open(system.settings).recall(Question("heron90basalt", Scope("acme", where=(("bird", "heron"),))))
    assert answer.hits[0].turn_index == 90
    assert any("the table is damaged" in line for line in answer.degraded)


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


def test_a_full_text_index_that_is_cut_off_is_built_again_and_no_vector_is_computed(
    system: Stepped, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job, "SAMPLE_PLACES", 0)
    monkeypatch.setattr(job, "SAMPLE", 0)
    largest = max((table_of(system.settings) / "_indices").rglob("*.lance"), key=lambda path: path.stat().st_size)
    largest.write_bytes(largest.read_bytes()[:-1])
    answer = ask(system.settings)
    assert (answer.hits[0].turn_index, len(answer.degraded)) == (7, 1)
    assert "`scope-recall maintain run reconcile`" in answer.degraded[0]
    report = run(system)
    assert (report.after["embedded"], report.after["discarded"], report.after["reindexed"]) == (0, 0, 1)
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
