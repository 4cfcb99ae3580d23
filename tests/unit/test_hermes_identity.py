"""Whose memory a session has: one for each person, profile and home, and none that two share."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from producers.events import MAX_ID_CHARS
from producers.hermes.identity import home_id, memory_of


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


def tenant(home: Path, session: str = "s", **facts: Any) -> str:
    return memory_of(home, session, facts).tenant


def test_the_owner_has_one_memory_on_this_machine_whatever_the_window(home: Path) -> None:
    assert (
        len({tenant(home, session, platform=name) for session in "ab" for name in ("cli", "tui", "acp", "cron")}) == 1
    )


def test_no_two_people_chats_or_profiles_share_one(home: Path, tmp_path: Path) -> None:
    people = [
        {"platform": "cli"},
        {"platform": "cli", "agent_identity": "coder"},
        {"platform": "cli", "user_id": "7"},
        {"platform": "telegram", "user_id": "7"},
        {"platform": "telegram", "user_id": "8"},
        {"platform": "discord", "user_id": "7"},
        {"platform": "telegram", "user_id": "7", "chat_type": "group", "chat_id": "7"},
        {"platform": "telegram", "user_id": "7", "chat_type": "group", "chat_id": "9"},
        {"platform": "telegram", "user_id": "8", "chat_type": "group", "chat_id": "9"},
        {"platform": "telegram", "chat_type": "dm", "chat_id": "7"},
        {"platform": "telegram", "user_id": "7", "user_id_alt": "stable"},
        {"platform": "a:b", "user_id": "c"},
        {"platform": "a", "user_id": "b:c"},
    ]
    found = [tenant(home, **facts) for facts in people]
    assert len(set(found)) == len(found)
    assert tenant(tmp_path, platform="cli") != tenant(home, platform="cli"), "two homes"


def test_who_cannot_be_told_apart_shares_nothing_with_the_next_session(home: Path) -> None:
    for facts in ({"platform": "api_server"}, {"platform": "telegram", "chat_type": "group", "chat_id": "9"}):
        assert tenant(home, "one", **facts) != tenant(home, "two", **facts)
        assert tenant(home, "one", **facts) == tenant(home, "one", **facts)


def test_in_a_tenant_for_all_people_are_kept_apart_by_the_agent(home: Path) -> None:
    one = memory_of(home, "s", {"platform": "telegram", "user_id": "7"}, "acme")
    two = memory_of(home, "s", {"platform": "telegram", "user_id": "8"}, "acme")
    assert one.scope() == {"tenant": "acme", "agents": [one.agent_id]}
    assert one.erasable() == {"tenant": "acme", "agent": one.agent_id}
    assert one.agent_id != two.agent_id
    alone = memory_of(home, "s", {"platform": "telegram", "user_id": "7"})
    assert alone.scope() == {"tenant": alone.tenant} == alone.erasable()


@given(st.lists(st.text(max_size=300), min_size=2, max_size=2, unique_by=str.strip))
def test_an_id_of_any_form_makes_a_tenant_of_its_own_that_the_stream_takes(
    tmp_path_factory: pytest.TempPathFactory, users: list[str]
) -> None:
    home = tmp_path_factory.getbasetemp() / "ids"
    found = [tenant(home, platform="matrix", user_id=user) for user in users]
    assert all(1 <= len(one) <= MAX_ID_CHARS and one.isascii() and one.isprintable() for one in found)
    for one, two in combinations(found, 2):
        assert one != two


def test_a_home_keeps_its_id_also_when_it_moves_or_cannot_be_written(tmp_path: Path) -> None:
    home = tmp_path / "home"
    found = home_id(home)
    assert home_id(home) == found
    moved = home.rename(tmp_path / "moved")
    assert home_id(moved) == found
    (tmp_path / "file").write_text("no folder")
    assert home_id(tmp_path / "file") == home_id(tmp_path / "file")
