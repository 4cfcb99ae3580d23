"""A backup holds the whole system, over both kinds of catalog, also while others write; a restored one goes on."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from background import Background
from producers.errors import NotReady, PoisonError
from producers.events import parse_event
from producers.settings import Settings
from producers.stream import EventStream
from stepped import Stepped, failing, turn
from whole_system import ask, everything
from workers.backup.catalog_copy import check_tools
from workers.backup.check import check_backup
from workers.backup.make import make_backup
from workers.backup.restore import restore_backup
from workers.dead_letters import DeadLetters
from workers.ingest import Arrival
from workers.stores.catalog import Catalog
from workers.stores.space import Space
from workers.stores.spaces import StoredSpace
from workers.stores.vectors import VectorStore
from workers.supervision.redis_server import embedded_redis

pytestmark = [pytest.mark.contract, pytest.mark.integration]

Make = Callable[..., Stepped]


@pytest.fixture
def original(
    live_settings: Settings, catalog_url: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Settings:
    """A running system on each kind of catalog."""
    if catalog_url.startswith("postgresql"):
        programs = request.getfixturevalue("postgresql").programs
        monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    return live_settings.model_copy(update={"catalog_url": catalog_url, "lease": 1.0, "batch_wait": 0.0})


@pytest.fixture
def elsewhere(original: Settings, make_catalog_url: Callable[[], str], tmp_path: Path) -> Settings:
    """The same settings on an empty place."""
    return original.model_copy(update={"data_dir": tmp_path / "elsewhere", "catalog_url": make_catalog_url()})


@pytest.fixture
def stepped() -> Iterator[Make]:
    """Makes stepped systems, which let go of their database at the end."""
    with ExitStack() as made:

        def make(settings: Settings, *lane: str) -> Stepped:
            system = Stepped(settings, *lane)  # type: ignore[arg-type]
            made.callback(system.pipeline._catalog.close)
            made.callback(system.client.close)
            return system

        yield make


def test_a_restored_system_holds_exactly_what_the_first_one_did(
    original: Settings, elsewhere: Settings, stepped: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    system = stepped(original)

    def refuse(texts: object) -> None:
        if "poison" in str(texts):
            raise PoisonError("it cannot be embedded")

    failing(system, monkeypatch, refuse)
    beside = Space("hashing-v1-32", 32, 256, 32)
    system.pipeline._catalog.spaces.begin_building(StoredSpace(beside, "hashing:32", None, "building"))
    system.push(*(turn(f"heron{number} flies over kestrel{number % 7}", number) for number in range(50)))
    system.push(turn("poison", 50))
    system.settle()
    system.push(turn("heron3 swims now", 3))
    system.settle()
    system.push(turn("kestrel waits", 60), turn("heron4 swims", 4))
    with EventStream(original, "backfill") as stream:
        stream.append([turn("old kestrel", 61)])
    made = make_backup(original, tmp_path / "backup")
    assert made.problem is None
    before = everything(original)
    # A word's weight comes from the index, and that of the restored table is fresh.
    VectorStore(original.vectors_location).rebuild_indexes(made.manifest.spaces[0].space)
    answers = _answers(original)
    assert check_backup(tmp_path / "backup") == made.manifest
    restore_backup(elsewhere, tmp_path / "backup")
    assert _answers(elsewhere) == answers, "before any index job has run"
    with embedded_redis(elsewhere):
        after = everything(elsewhere)
        assert after.catalog == before.catalog
        assert after.vectors == before.vectors
        assert [len(rows) for rows in after.vectors.values()] == [50, 50], "in both spaces"
        assert after.streams == before.streams
        assert [len(entries) for entries in after.streams.values()] == [2, 1, 1]
        restored, backfill = stepped(elsewhere), stepped(elsewhere, "backfill")
        restored.settle()
        backfill.settle()
        assert restored.counts()[0] == 52, "the 50 and what waited on both lanes, without the poison"
        assert DeadLetters(restored.client, elsewhere).count() == 1
    assert ask(elsewhere, "heron4")[0][0] == "heron4 swims", "the revision that waited is the newer one"


def _answers(settings: Settings) -> list[list[tuple[str, float]]]:
    questions = [f"who flies over kestrel{number}" for number in range(7)] + ["heron30", "what swims"]
    return [ask(settings, question) for question in questions]


class Load(Background):
    """Threads that push revisions of the same turns, and store them, for as long as the block runs."""

    TURNS = 40

    def __init__(self, system: Stepped) -> None:
        super().__init__(lambda: self._guard(self._push), lambda: self._guard(self._store))
        self._system = system
        self.accepted: dict[int, int] = {}
        """The last revision of each turn that was accepted."""
        self.failed: list[BaseException] = []

    def _guard(self, run: Callable[[], None]) -> None:
        try:
            run()
        except BaseException as error:
            self.failed.append(error)
            raise

    def _push(self) -> None:
        with EventStream(self._system.settings) as stream:
            for number in range(1_000_000):
                if self.stop.is_set():
                    return
                index, revision = number % self.TURNS, number // self.TURNS
                stream.append([turn(f"turn{index} revision{revision}", index, session_id="load")])
                self.accepted[index] = revision

    def _store(self) -> None:
        ledger, pipeline = self._system.ledger, self._system.pipeline
        while not self.stop.is_set():
            entries = ledger.read(16, 0.05)
            if entries:
                events = [parse_event(entry.payload, self._system.settings) for entry in entries]
                pipeline.store([Arrival(one, entry.order) for one, entry in zip(events, entries, strict=True)])
                ledger.settle([entry.id for entry in entries])


def _revisions(settings: Settings) -> dict[int, int]:
    """Turn → the revision that is stored."""
    keys = [turn("any", index, session_id="load").key for index in range(Load.TURNS)]
    with closing(Catalog.open(settings.catalog_location)) as catalog:
        stored = catalog.stored_turns(keys).values()
    return {one.event.turn_index: int(one.event.content.rpartition("revision")[2]) for one in stored}


def test_a_backup_under_load_holds_what_was_accepted_before_it_once_and_in_its_last_form(
    original: Settings, elsewhere: Settings, stepped: Make, tmp_path: Path
) -> None:
    with Load(stepped(original)) as load:
        while len(load.accepted) < Load.TURNS:
            time.sleep(0.01)
        before = dict(load.accepted)
        make_backup(original, tmp_path / "backup")
        after = dict(load.accepted)
    assert load.failed == []
    assert sum(after.values()) > sum(before.values()), "it went on meanwhile"
    restore_backup(elsewhere, tmp_path / "backup")
    with embedded_redis(elsewhere):
        restored = stepped(elsewhere)
        restored.settle()
        assert restored.left() == (0, 0)
        assert restored.counts() == (Load.TURNS, Load.TURNS, Load.TURNS)
    found = _revisions(elsewhere)
    assert [index for index in before if not before[index] <= found[index] <= after[index] + 1] == []


def test_without_pg_dump_postgresql_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    check_tools("sqlite:////anywhere/catalog.db")
    with pytest.raises(NotReady, match="pg_dump is not on PATH"):
        check_tools("postgresql+psycopg://user@host/memory")
