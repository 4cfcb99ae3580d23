"""Whoever runs while reads are switched to another space goes on: a recaller, and a worker with the old setting."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from producers.errors import ModelError
from producers.settings import Settings
from query.recall import Recaller
from spaced import Spaced, asked, said
from workers.embedding.registry import load_embedder
from workers.maintenance.reembed import models
from workers.runtime import build_ingest
from workers.status import gather_status

pytestmark = pytest.mark.integration


@pytest.fixture
def system(shared_settings: Settings) -> Spaced:
    models.keep(set())
    return Spaced(shared_settings)


def test_a_running_recaller_answers_from_the_old_space_until_the_new_model_is_loaded(
    system: Spaced, monkeypatch: pytest.MonkeyPatch
) -> None:
    system.store(*map(said, range(30)))
    recaller = Recaller.open(system.settings)
    assert asked(system, recaller=recaller).embedder == "hashing-v1"
    new = system.begin("hashing:128")
    system.run()
    assert system.active == new
    loaded = threading.Event()

    def load(name: str, settings: Settings) -> Any:
        assert loaded.wait(60)
        return load_embedder(name, settings)

    monkeypatch.setattr("query.models.load_embedder", load)
    for number in range(3):
        answer = asked(system, f"number{number}", recaller)
        assert (answer.embedder, answer.degraded) == ("hashing-v1", [])
        assert answer.hits[0].turn_index == number
    system.store(said(31))
    assert asked(system, "number31", recaller).hits[0].turn_index == 31, "the old space is written to all the while"
    loaded.set()
    deadline = time.monotonic() + 60
    while (answer := asked(system, "number31", recaller)).embedder != "hashing-v1-128":
        assert answer.hits[0].turn_index == 31
        assert time.monotonic() < deadline
    assert (answer.hits[0].turn_index, answer.degraded) == (31, [])


def test_a_recaller_that_cannot_load_the_new_model_stays_with_the_old_space_while_there_is_one(
    system: Spaced, monkeypatch: pytest.MonkeyPatch
) -> None:
    system.store(*map(said, range(30)))
    recaller = Recaller.open(system.settings)
    asked(system, recaller=recaller)
    old, new = system.active, system.begin("hashing:128")
    system.run()

    def load(name: str, settings: Settings) -> Any:
        raise ModelError(f"embedder {name}: not on this machine")

    monkeypatch.setattr("query.models.load_embedder", load)
    for _ in range(20):
        assert asked(system, recaller=recaller).embedder == "hashing-v1"
        time.sleep(0.01)
    system.catalog.spaces.retire(old)
    answer = asked(system, "number5", recaller)
    assert (answer.embedder, answer.hits[0].turn_index) == (new.embedder, 5), "by its words alone"
    assert "not on this machine" in answer.degraded[0]


def test_a_worker_goes_on_after_a_switch_although_its_setting_is_the_old_model(system: Spaced) -> None:
    system.store(*map(said, range(10)))
    old, new = system.active, system.begin("hashing:128")
    system.run()
    assert system.settings.embedder == "hashing"
    pipeline, _ = build_ingest(system.settings, system.client)
    assert pipeline.active.space == new
    assert asked(system, "number3").embedder == "hashing-v1-128"
    [advice] = [line for line in gather_status(system.settings)["advice"] if "SCOPE_RECALL_EMBEDDER" in line]
    assert "SCOPE_RECALL_EMBEDDER=hashing:128" in advice
    following = system.settings.model_copy(update={"embedder": "hashing:128"})
    assert not any("SCOPE_RECALL_EMBEDDER" in line for line in gather_status(following)["advice"])
    assert build_ingest(following, system.client)[0].active.space == new
    with pytest.raises(ModelError, match=r"hashing-v1-128 .*hashing-v1-32 "):
        build_ingest(system.settings.model_copy(update={"embedder": "hashing:32"}), system.client)
    system.catalog.spaces.retire(old)
    with pytest.raises(ModelError, match=r"hashing-v1-128 .*hashing-v1 "):
        build_ingest(system.settings, system.client)
