"""Turn events out of what a transcript says: whatever it holds, the stream takes it or the reason is known."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from producers.events import MAX_ID_CHARS, TurnEvent, parse_event
from producers.settings import load_settings
from producers.transcripts.port import LeftOut, Said
from workers.backfill.building import Target, event_of, identifier

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
SETTINGS = load_settings(max_content_bytes=200, max_metadata_bytes=120)
ANY_TEXT = st.text(st.characters(), max_size=400)  # lone surrogates and NUL among it


@given(ANY_TEXT, ANY_TEXT, st.dictionaries(st.sampled_from(["tool", "cwd", "title"]), ANY_TEXT | st.integers()))
def test_whatever_a_transcript_says_makes_an_event_that_the_stream_takes(
    content: str, session: str, metadata: dict[str, object]
) -> None:
    said = Said(session, "user", content, "o", "line 1", metadata=metadata, speaker=session, agent_id=session)
    built = event_of(said, "codex", Target("t"), SETTINGS)
    if isinstance(built, LeftOut):
        assert built.reason == "empty"
        assert not content.strip()
        return
    assert parse_event(built.to_json(), SETTINGS) == built


def test_what_is_cut_says_how_much_is_left_out() -> None:
    built = event_of(Said("s", "user", "证" * 100, "o", "line 1"), "codex", Target("t"), SETTINGS)
    assert isinstance(built, TurnEvent)
    assert built.content.endswith("\n[100 bytes and more left out]")
    assert built.content.startswith("证" * 50)


def test_surrogates_and_nul_are_replaced_and_the_turn_is_kept() -> None:
    built = event_of(Said("s", "user", "a\ud800b\x00c", "o", "line 1"), "codex", Target("t"), SETTINGS)
    assert isinstance(built, TurnEvent)
    assert built.content == "a\N{REPLACEMENT CHARACTER}b\N{REPLACEMENT CHARACTER}c"


def test_kind_becomes_a_tag_and_prose_has_none() -> None:
    tags = [
        event_of(Said("s", "tool", "x", "o", "line 1", kind=kind), "codex", Target("t"), SETTINGS).tags  # type: ignore[union-attr]
        for kind in ("prose", "tool-call", "tool-result")
    ]
    assert tags == [(), ("tool-call",), ("tool-result",)]


def test_the_target_gives_tenant_prefix_and_agent_unless_the_file_names_one() -> None:
    target = Target("acme", agent="coder", session_prefix="old-")
    named, unnamed = (
        event_of(Said("s", "user", "x", "o", "line 1", agent_id=agent), "codex", target, SETTINGS)
        for agent in ("reviewer", None)
    )
    assert isinstance(named, TurnEvent)
    assert isinstance(unnamed, TurnEvent)
    assert (named.tenant, named.session_id, named.agent_id, unnamed.agent_id) == ("acme", "old-s", "reviewer", "coder")


@pytest.mark.parametrize(
    ("said_at", "reason"),
    [
        (NOON, None),
        (NOON - timedelta(seconds=1), "outside the time range"),
        (NOON + timedelta(hours=1), "outside the time range"),
        (None, "no time to compare"),
    ],
)
def test_a_time_range_is_half_open_and_leaves_out_what_has_no_time(
    said_at: datetime | None, reason: str | None
) -> None:
    target = Target("t", since=NOON, until=NOON + timedelta(hours=1))
    built = event_of(Said("s", "user", "x", "o", "line 1", created_at=said_at), "codex", target, SETTINGS)
    assert (built.reason if isinstance(built, LeftOut) else None) == reason


@given(st.text(min_size=1, max_size=600), st.text(min_size=1, max_size=600))
def test_ids_that_differ_only_behind_the_limit_stay_different(one: str, other: str) -> None:
    long_one, long_other = "x" * MAX_ID_CHARS + one, "x" * MAX_ID_CHARS + other
    assert len(identifier(long_one)) == MAX_ID_CHARS
    assert (identifier(long_one) == identifier(long_other)) == (one == other)


def test_a_parent_session_is_named_as_it_is_stored() -> None:
    said = Said("child", "user", "x", "o", "line 1", metadata={"parent_session": "parent"})
    for prefix in ("", "old-"):
        built = event_of(said, "codex", Target("t", session_prefix=prefix), SETTINGS)
        assert isinstance(built, TurnEvent)
        assert (built.session_id, built.metadata["parent_session"]) == (f"{prefix}child", f"{prefix}parent")
