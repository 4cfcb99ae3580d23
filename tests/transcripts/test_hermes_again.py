"""Hermes databases that are read again: grown, rewritten, exchanged, put back from an older copy."""

from __future__ import annotations

from pathlib import Path

import pytest
from hermes_database import HermesDatabase, talk
from reading_checks import check_resumption, items_of, origins, said_in, short

from producers.transcripts import hermes
from producers.transcripts.hermes import Hermes
from producers.transcripts.port import Mark


@pytest.fixture
def database(tmp_path: Path) -> HermesDatabase:
    (tmp_path / "home").mkdir()
    return HermesDatabase(tmp_path / "home" / "state.db")


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hermes, "PAGE_ROWS", 3)


def test_a_rewritten_session_keeps_its_origins_and_growth_is_read_alone(database: HermesDatabase) -> None:
    database.session("a")
    talk(database, "a", "yes", "no", "yes")
    before = items_of(Hermes(), database.path)
    assert isinstance(before[-1], Mark)
    database.rewrite("a")
    database.say("a", "user", "yes")
    database.session("b")
    talk(database, "b", "new")
    after = items_of(Hermes(), database.path, before[-1].state)
    assert origins(after)[:3] == origins(before)
    assert [content for *_, content in short(after)[3:]] == ["yes", "new"]
    assert isinstance(after[-1], Mark)
    assert said_in(items_of(Hermes(), database.path, after[-1].state)) == []


def test_another_database_in_the_same_place_is_read_from_its_start(database: HermesDatabase, tmp_path: Path) -> None:
    database.session("a")
    talk(database, "a", "one", "two")
    other = HermesDatabase(tmp_path / "state.db")
    other.session("b")
    talk(other, "b", "three", "four", "five")
    end = items_of(Hermes(), database.path)[-1]
    assert isinstance(end, Mark)
    assert len(said_in(items_of(Hermes(), other.path, end.state))) == 3


@pytest.mark.parametrize("rows", [8, 10, 12])
def test_an_older_copy_that_was_put_back_and_goes_on_loses_nothing(database: HermesDatabase, rows: int) -> None:
    database.session("a")
    talk(database, "a", *(f"old {number}" for number in range(10)))
    before = items_of(Hermes(), database.path)
    assert isinstance(before[-1], Mark)
    database.execute("DELETE FROM messages WHERE id > 6")
    database.execute("UPDATE sqlite_sequence SET seq = 6")
    talk(database, "a", *(f"new {number}" for number in range(rows - 6)))
    after = items_of(Hermes(), database.path, before[-1].state)
    new = [one.content for one in said_in(after) if one.origin not in origins(before)]
    assert new == [f"new {number}" for number in range(rows - 6)]
    assert isinstance(after[-1], Mark)
    assert said_in(items_of(Hermes(), database.path, after[-1].state)) == []


def test_a_state_without_a_digest_of_its_last_row_is_gone_on_from(database: HermesDatabase) -> None:
    database.session("a")
    talk(database, "a", "one", "two")
    before = items_of(Hermes(), database.path)[-1]
    assert isinstance(before, Mark)
    older = {name: value for name, value in before.state.items() if name != "digest"}
    after = items_of(Hermes(), database.path, older)
    assert said_in(after) == []
    assert isinstance(after[-1], Mark)
    assert after[-1].state == before.state


def test_it_goes_on_from_every_mark(database: HermesDatabase) -> None:
    for session in ("a", "b"):
        database.session(session)
        talk(database, session, *(f"{session} {number}" for number in range(7)))
    database.compact("a", 1, 2)
    talk(database, "a", "more", "and more")
    assert check_resumption(Hermes(), database.path) >= 7
