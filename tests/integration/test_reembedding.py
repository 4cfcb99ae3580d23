"""Changing the model over the real path: both spaces hold every turn, recall never stops, and nothing mixes."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from producers.errors import EmbedderUnavailable, NotReady, UsageError
from producers.settings import Settings
from spaced import Spaced, asked, said
from stepped import turn
from workers.embedding.hashing import HashingEmbedder
from workers.embedding.registry import load_embedder
from workers.encoders import Encoders
from workers.maintenance import filling
from workers.maintenance.dropping import SHORTEST_STANDBY, due
from workers.maintenance.forget import forget
from workers.maintenance.probing import read_probes
from workers.maintenance.reembed import Reembedding, models
from workers.status import gather_status
from workers.stores.selection import Selection
from workers.stores.space import Space
from workers.stores.spaces import StoredSpace

pytestmark = pytest.mark.integration


@pytest.fixture
def system(shared_settings: Settings) -> Spaced:
    models.keep(set())
    return Spaced(shared_settings)


def test_a_new_model_is_built_beside_switched_to_back_and_the_old_one_dropped(system: Spaced) -> None:
    system.store(*map(said, range(60)))
    old = system.active
    new = system.begin("hashing:128")
    system.store(*map(said, range(60, 80)))
    assert system.catalog.filling.filled_and_turns(new) == (20, 80), "live turns are written to both"
    assert asked(system).embedder == "hashing-v1"
    did = system.run()
    assert did is not None
    assert "brought 60 turns" in did
    assert f"switched recall to {new.id}" in did
    assert (system.active, system.exact(old), system.exact(new)) == (new, 80, 80)
    system.store(*map(said, range(80, 90)))
    answer = asked(system, "number85")
    assert (answer.embedder, answer.hits[0].turn_index, answer.degraded) == ("hashing-v1-128", 85, [])
    assert (system.exact(old), system.exact(new)) == (90, 90)

    Reembedding(system.settings, system.catalog).switch(old)
    assert asked(system, "number85").embedder == "hashing-v1"
    system.store(*map(said, range(90, 95)))
    assert (system.exact(old), system.exact(new)) == (95, 95)

    late = datetime.now(UTC) + timedelta(days=8)
    assert Reembedding(system.settings, system.catalog).drop_due(late) == [f"dropped {new.id}"]
    assert [one.space for one in system.catalog.spaces.all()] == [old]
    assert list(system.catalog.vector_ids(new)) == []
    assert not (Path(system.settings.vectors_location) / f"{new.id}.lance").exists()
    system.store(*map(said, range(95, 100)))
    assert system.counts() == (100, 100, 100)


def test_a_fill_that_goes_on_after_the_cancel_brings_no_table_back(system: Spaced) -> None:
    system.store(*map(said, range(60)))
    new = system.begin("hashing:128")
    work = Reembedding(system.settings, system.catalog)
    [building] = [one for one in system.catalog.spaces.all() if one.space == new]
    looks = 0

    def cancelled_meanwhile() -> bool:
        nonlocal looks
        looks += 1
        if looks == 20:  # in the middle of a batch
            system.catalog.spaces.cancel()
            assert work.drop_due(datetime.now(UTC)) == [f"dropped {new.id}"]
        return True

    work.fill(building, cancelled_meanwhile)
    assert looks >= 20
    assert not (Path(system.settings.vectors_location) / f"{new.id}.lance").exists()
    assert [one.space for one in system.catalog.spaces.all()] == [system.active]
    again = looks
    work.fill(building, cancelled_meanwhile)
    assert looks == again + 1, "nothing is embedded for a space that is gone"


def test_settings_that_ask_for_a_model_that_is_gone_are_told_before_a_worker_refuses(system: Spaced) -> None:
    system.store(*map(said, range(5)))
    system.begin("hashing:128")
    system.run()
    asked_for = system.settings.model_copy(update={"embedder": "hashing"})
    assert any("before the space of the old one is dropped" in line for line in gather_status(asked_for)["advice"])
    Reembedding(system.settings, system.catalog).drop_due(datetime.now(UTC) + timedelta(days=8))
    [advice] = gather_status(asked_for)["advice"]
    assert "a worker that starts now refuses to store anything" in advice
    assert "Set SCOPE_RECALL_EMBEDDER=hashing:128" in advice


def test_what_is_revised_or_forgotten_while_it_is_embedded_does_not_come_back(
    system: Spaced, monkeypatch: pytest.MonkeyPatch
) -> None:
    system.store(*map(said, range(20)), *[said(n, session_id="gone") for n in range(20, 30)])
    new = system.begin("hashing:128")
    embed = HashingEmbedder.embed_passages
    meanwhile: list[Callable[[], Any]] = [
        lambda: system.store(turn("a text that replaces the old one", 3, tenant="t")),
        lambda: forget(system.settings, Selection("t", "gone"), verify=False),
    ]

    def embed_passages(self: HashingEmbedder, texts: Any) -> Any:
        vectors = embed(self, texts)
        if self.dimension == 128 and len(texts) > 5 and meanwhile:
            meanwhile.pop()()
            if meanwhile:
                meanwhile.pop()()
        return vectors

    monkeypatch.setattr(HashingEmbedder, "embed_passages", embed_passages)
    system.run()
    assert not meanwhile
    if system.active != new:
        system.run()
    assert (system.active, system.exact(new)) == (new, 20)
    assert asked(system, "replaces").hits[0].content == "a text that replaces the old one"
    assert "gone" not in {hit.session_id for hit in asked(system).hits}


def test_a_model_that_is_away_holds_up_no_live_turn_and_its_space_is_filled_when_it_is_back(
    system: Spaced, monkeypatch: pytest.MonkeyPatch
) -> None:
    system.store(*map(said, range(5)))
    new = system.begin("hashing:128")

    def away(stored: StoredSpace) -> Any:
        raise EmbedderUnavailable("the service answered 503")

    encoders: Encoders = system.pipeline._encoders
    monkeypatch.setattr(encoders, "_load", away)
    system.store(*map(said, range(5, 10)))
    assert 7 in {hit.turn_index for hit in asked(system, "number7").hits}
    assert system.catalog.filling.filled_and_turns(new) == (0, 10)
    system.run()
    assert (system.active, system.exact(new)) == (new, 10)
    system.push(said(11))
    with monkeypatch.context() as patch:
        patch.setattr("workers.jobs.FIRST_WAIT", 0.1)
        patch.setattr(encoders, "_load", lambda stored: load_embedder(stored.setting, system.settings))
        system.settle()
    assert system.exact(new) == 11


def test_a_text_that_only_the_new_model_refuses_is_stored_and_keeps_reads_from_being_switched(
    system: Spaced, monkeypatch: pytest.MonkeyPatch
) -> None:
    embed = HashingEmbedder.embed_passages

    def embed_passages(self: HashingEmbedder, texts: Any) -> Any:
        vectors = embed(self, texts)
        if self.dimension == 128:
            for at, text in enumerate(texts):
                vectors[at] = float("nan") if "refused" in text else vectors[at]
        return vectors

    monkeypatch.setattr(HashingEmbedder, "embed_passages", embed_passages)
    system.store(*map(said, range(5)), turn("this is refused", 5, tenant="t"))
    new = system.begin("hashing:128")
    system.store(turn("this too is refused", 6, tenant="t"), said(7))
    assert asked(system, "refused").hits[0].turn_index in (5, 6)
    with pytest.raises(NotReady, match=r"refuses 2 turns .*--switch-anyway"):
        system.run()
    assert system.catalog.filling.filled_and_turns(new) == (6, 8)
    system.catalog.spaces.note(new, switch_anyway=True)
    system.run()
    assert system.active == new


def test_a_worse_model_is_not_switched_to_says_so_and_can_be_switched_to_anyway(system: Spaced) -> None:
    system.store(*map(said, range(60)))
    old, new = system.active, system.begin("hashing:2")
    with pytest.raises(NotReady, match=r"recall@10 on 60 parts of stored turns is 0\.\d+ with hashing-v1-2.*--cancel"):
        system.run()
    assert system.active == old
    [run] = system.catalog.runs.history("reembed", 1)
    assert run.outcome == "failed"
    assert run.after["recall"] < run.after["recall_before"] - 0.02
    assert (run.after["probes"], run.after["filled"], run.after["turns"]) == (60, 60, 60)
    assert system.run() is None, "it is compared once, not each minute"
    status = gather_status(system.settings)
    assert any("--switch-anyway" in line for line in status["degraded"])
    assert [space["state"] for space in status["spaces"]] == ["active", "building"]
    system.catalog.spaces.note(new, switch_anyway=True)
    assert system.run() == f"switched recall to {new.id}"
    assert not any("--switch-anyway" in line for line in gather_status(system.settings)["degraded"])


def test_given_questions_decide_and_go_with_what_they_ask_for(system: Spaced, tmp_path: Path) -> None:
    system.store(*map(said, range(40)), said(50, session_id="gone"))
    path = tmp_path / "probes.jsonl"
    questions = [
        {"query_id": f"q{n}", "query": f"number{n}", "scope": "t", "evidence": [{"session_id": "s", "turn_index": n}]}
        for n in range(10)
    ]
    questions.append({**questions[0], "query_id": "g", "evidence": [{"session_id": "gone", "turn_index": 50}]})
    path.write_text("\n".join(map(json.dumps, questions)))
    assert system.catalog.probes.keep(read_probes(path)) == 11
    forget(system.settings, Selection("t", "gone"), verify=False)
    new = system.begin("hashing:256")
    system.run()
    assert system.active == new
    [run] = system.catalog.runs.history("reembed", 1)
    assert (run.after["probes"], run.after["probes_are"]) == (10, "given")
    assert run.after["recall"] >= run.after["recall_before"] - 0.02


ASKED = '{"query": "q", "tenant": "t", "evidence": [{"session_id": "s", "turn_index": 3}]}'
NAMED = ASKED.replace("{", '{"query_id": "one", ', 1)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("{", "line 1: not an object with query"),
        ('{"query": "q", "tenant": 3, "evidence": []}', "line 1: tenant"),
        ('{"query": "q", "tenant": "t", "evidence": [{"session_id": "s", "turn_index": "3"}]}', "turn_index a number"),
        ('{"query": "q", "tenant": "t"}', "no question with evidence"),
        ("", "no question with evidence"),
        (f"{ASKED}\n{ASKED.replace('3', str(10**30))}", "line 2: turn_index is from 0 to 9223372036854775807"),
        (ASKED.replace("3", "-1"), "line 1: turn_index is from 0"),
        (ASKED.replace('"q"', '"\\ud800"'), "line 1: holds a NUL or a lone surrogate"),
        (ASKED.replace('"s"', '"s\\u0000"'), "line 1: holds a NUL or a lone surrogate"),
        (f"{ASKED}\n{'[' * 100_000}", "line 2: not an object with query"),
        (f"{ASKED}\n\udc80", "line 2: not UTF-8 text"),
        (f"{NAMED}\n\n{NAMED}", "line 3: query_id 'one' is that of line 1 as well"),
        (NAMED.replace("one", "1" * 257), "line 1: query_id has 257 characters"),
    ],
)
def test_a_wrong_file_of_questions_is_named(tmp_path: Path, line: str, why: str) -> None:
    path = tmp_path / "probes.jsonl"
    path.write_text(line, errors="surrogateescape")
    with pytest.raises(UsageError, match=why):
        read_probes(path)
    with pytest.raises(UsageError, match="No such file"):
        read_probes(tmp_path / "none")


def test_questions_without_an_id_or_with_a_separator_of_lines_are_each_kept(tmp_path: Path) -> None:
    path = tmp_path / "probes.jsonl"
    separated = ASKED.replace('"q"', '"a\u2028b\x85c"')
    path.write_text(f"\ufeff{ASKED}\r\n{separated}\n{NAMED.replace('one', '1')}\n")
    assert [one.query for one in read_probes(path)] == ["q", "a\u2028b\x85c", "q"]


def test_the_rate_is_kept_and_what_is_done_is_shown(system: Spaced, monkeypatch: pytest.MonkeyPatch) -> None:
    system.store(*map(said, range(60)))
    new = system.begin("hashing:128", rate=20.0)
    monkeypatch.setattr(filling, "FIRST_TURNS", 10)
    building = system.catalog.spaces.building()
    assert building is not None
    work = Reembedding(system.settings, system.catalog)
    done: list[int] = []
    part = work.fill(building, lambda: not done, done.append)
    assert (part.turns, part.complete, done) == (10, False, [10])
    [shown] = [one for one in gather_status(system.settings)["spaces"] if one["state"] == "building"]
    assert (shown["filled"], shown["turns"], shown["share"]) == (10, 60, 0.1667)
    assert shown["turns_per_second"] > 0
    assert shown["eta_s"] is not None
    started = time.monotonic()
    rest = work.fill(building, lambda: True)
    assert (rest.turns, rest.complete) == (50, True)
    assert time.monotonic() - started >= 50 / 20
    building = system.catalog.spaces.building()
    assert building is not None
    assert building.plan.speed is not None
    assert building.plan.speed <= 20
    assert system.exact(new) == 60


def test_a_space_stays_for_as_long_as_is_set_and_never_less_than_a_service_needs() -> None:
    now = datetime.now(UTC)
    kept = StoredSpace(Space("m", 8, 256, 32), "m", None, "standby", since=now - timedelta(days=3))
    assert not due(kept, 7.0, now)
    assert due(kept, 2.0, now)
    assert not due(replace(kept, since=now), 0.0, now)
    assert due(replace(kept, since=now), 0.0, now + SHORTEST_STANDBY)
    assert due(replace(kept, state="dropping"), 7.0, now)
    assert not due(replace(kept, state="active"), 0.0, now)
    assert not due(replace(kept, state="building"), 0.0, now)
