"""TurnEvent: its limits, its identity, and errors that name field, limit and value."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from producers.errors import InvalidEvent
from producers.events import Identity, TurnEvent, from_utc_microseconds, parse_event, utc_microseconds
from producers.settings import Settings

SETTINGS = Settings()
GOOD: dict[str, Any] = {"session_id": "s", "turn_index": 0, "role": "user", "content": "hello"}


def parse(**changes: Any) -> TurnEvent:
    return parse_event(json.dumps(GOOD | changes), SETTINGS)


def test_a_minimal_event_gets_the_documented_defaults() -> None:
    event = parse()
    assert (event.tenant, event.source, event.tags, event.metadata, event.created_at) == (
        "default",
        "push",
        (),
        {},
        None,
    )


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"content": "x" * (2 << 20)}, "content: 2,097,152 bytes, over the limit of 1,048,576"),
        ({"content": "界" * 400_000}, "content: 1,200,000 bytes"),
        ({"content": ""}, "content: string should have at least 1 character, got ''"),
        ({"content": " \n\t"}, "content: is blank"),
        ({"content": "a\x00b"}, "content: holds a NUL character at position 1"),
        ({"metadata": {"k": "v" * 20_000}}, "metadata: 20,009 bytes of JSON, over the limit of 16,384"),
        (
            {"created_at": "2026-01-31T09:00:00"},
            "created_at: has no time zone, got '2026-01-31T09:00:00'; add",
        ),
        ({"created_at": "9999-12-31T23:59:59-14:00"}, "created_at: lies outside the years 1 to 9999 in UTC"),
        ({"created_at": "0001-01-01T00:00:00+14:00"}, "created_at: lies outside the years 1 to 9999 in UTC"),
        ({"created_at": "yesterday"}, "created_at: input should be a valid datetime"),
        ({"turn_index": -1}, "turn_index: input should be greater than or equal to 0, got -1"),
        ({"turn_index": "7"}, "turn_index: input should be a valid integer, got '7'"),
        ({"turn_index": 2**63}, "turn_index: input should be less than or equal to 9223372036854775807"),
        ({"role": "robot"}, "role: input should be 'user', 'assistant', 'system' or 'tool', got 'robot'"),
        ({"tenant": "x" * 257}, "tenant: string should have at most 256 characters"),
        ({"session_id": "a\nb"}, "session_id: holds the control character '\\n' at position 1"),
        ({"tags": ["ok", ""]}, "tags.1: string should have at least 1 character"),
        ({"tags": [str(n) for n in range(65)]}, "tags: "),
        ({"colour": "red"}, "colour: unknown field; the fields are tenant, agent_id"),
    ],
)
def test_a_bad_field_is_refused_with_field_limit_and_value(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidEvent) as caught:
        parse(**changes)
    assert said in str(caught.value)
    assert len(str(caught.value)) < 400, "the value itself must not flood the message"


@pytest.mark.parametrize("missing", ["session_id", "turn_index", "role", "content"])
def test_a_missing_field_is_named(missing: str) -> None:
    with pytest.raises(InvalidEvent, match=f"^{missing}: missing$"):
        parse_event(json.dumps({key: value for key, value in GOOD.items() if key != missing}), SETTINGS)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b'{"session_id"', "invalid JSON"),
        (b"", "invalid JSON"),
        (b"[]", "not a JSON object"),
        (b"\xff\xfe", "invalid JSON"),
        (b'{"session_id":"s","turn_index":0,"role":"user","content":"a\\ud800b"}', "content: holds a lone surrogate"),
        (
            b'{"session_id":"s","turn_index":0,"role":"user","content":"a","metadata":{"x":"\\udc00"}}',
            "metadata: holds a",
        ),
    ],
)
def test_broken_json_is_told_from_a_lone_surrogate(data: bytes, said: str) -> None:
    with pytest.raises(InvalidEvent, match=said):
        parse_event(data, SETTINGS)


@pytest.mark.parametrize("metadata", [{"x": "\ud800"}, {"x": float("nan")}, {"x": object()}])
def test_metadata_that_is_not_json_is_refused_from_python_too(metadata: dict[str, Any]) -> None:
    with pytest.raises(InvalidEvent, match=r"^metadata: not JSON"):
        parse_event(GOOD | {"metadata": metadata}, SETTINGS)


def test_what_a_log_may_show_holds_no_value() -> None:
    for changes in ({"role": "my secret"}, {"content": 5, "session_id": ["my secret"]}, {"created_at": "my secret"}):
        with pytest.raises(InvalidEvent) as caught:
            parse(**changes)
        assert "my secret" not in caught.value.without_values
        assert next(iter(changes)) in caught.value.without_values


@pytest.mark.parametrize("depth", [500, 50_000])
def test_deep_nesting_is_refused_and_never_a_recursion_error(depth: int) -> None:
    deep = b"[" * depth + b"]" * depth
    surrogate = b'{"a":"\\ud800' + deep
    for data in (
        deep,
        surrogate,
        b'{"session_id":"s","turn_index":0,"role":"user","content":"x","metadata":{"x":' + deep + b"}}",
    ):
        with pytest.raises(InvalidEvent):
            parse_event(data, SETTINGS)


def test_several_problems_are_all_named() -> None:
    with pytest.raises(InvalidEvent) as caught:
        parse(turn_index=-1, role="robot")
    assert "turn_index" in str(caught.value)
    assert "role" in str(caught.value)


def test_identity_parts_cannot_run_into_each_other() -> None:
    assert Identity("a", "b:c", 0, "user").key != Identity("a:b", "c", 0, "user").key
    assert Identity("a", "b", 1, "user").key != Identity("a", "b1", 1, "user").key


def test_the_role_is_part_of_the_identity_and_the_content_is_not() -> None:
    assert parse().identity.key != parse(role="tool").identity.key
    assert parse().identity.key == parse(content="other").identity.key
    assert parse().content_hash != parse(content="other").content_hash


def test_repeated_tags_are_kept_once_in_order() -> None:
    assert parse(tags=["b", "a", "b"]).tags == ("b", "a")


text = st.text(min_size=1, max_size=40).filter(lambda value: value.strip() and "\x00" not in value)
names = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=20)


@given(
    tenant=names,
    session_id=names,
    turn_index=st.integers(0, 2**63 - 1),
    role=st.sampled_from(["user", "assistant", "system", "tool"]),
    content=text,
    created_at=st.none() | st.datetimes(timezones=st.just(UTC)),
    tags=st.lists(names, max_size=3, unique=True).map(tuple),
)
def test_an_event_survives_its_journey_as_json(**fields: Any) -> None:
    event = TurnEvent(**fields)
    assert parse_event(event.to_json(), SETTINGS) == event


def test_times_are_kept_as_utc_microseconds() -> None:
    moment = datetime(2026, 1, 31, 17, 0, 0, 123456, timezone(timedelta(hours=8)))
    assert utc_microseconds(moment) == 1_769_850_000_123_456
    assert utc_microseconds(None) is None


OFFSETS = st.integers(-14 * 60, 14 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))


@given(st.datetimes(datetime(2, 1, 1), datetime(9998, 12, 31), timezones=OFFSETS))  # noqa: DTZ001  # the offset is added
def test_no_time_is_changed_by_being_kept(moment: datetime) -> None:
    kept = from_utc_microseconds(utc_microseconds(moment))
    assert kept == moment
