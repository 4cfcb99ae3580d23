"""What a tombstone covers, and what is refused as a selection."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from producers.errors import UsageError
from producers.events import TurnEvent, utc_microseconds
from workers.order import milliseconds_of, order_at
from workers.stores.selection import Facts, Selection, Tombstone, digest

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
NOON_MS = int(NOON.timestamp() * 1000)
CUTOFF = order_at(NOON_MS + 5, 3)
IDS = st.sampled_from(["a", "b", "o'brien", "a\x80", "会话", "%"])
MAYBE = st.none() | IDS
TIMES = st.none() | st.integers(-3, 3).map(lambda hours: NOON + timedelta(hours=hours))
ORDERS = st.integers(0, 10).map(lambda ms: order_at(NOON_MS + ms, 3))


def tombstone(selection: Selection, cutoff: str = CUTOFF) -> Tombstone:
    digests = digest("tenant", selection.tenant), digest("session", selection.session), digest("agent", selection.agent)
    assert digests[0] is not None
    return Tombstone(1, digests[0], digests[1], digests[2], selection.before_us, cutoff)


@given(IDS, MAYBE, MAYBE, TIMES, IDS, IDS, MAYBE, TIMES, ORDERS)
def test_a_tombstone_covers_what_a_plain_reading_of_the_selection_says(
    tenant: str,
    session: str | None,
    agent: str | None,
    before: datetime | None,
    of: str,
    within: str,
    by: str | None,
    said: datetime | None,
    accepted: str,
) -> None:
    said_or_accepted = said or datetime.fromtimestamp(milliseconds_of(accepted) / 1000, UTC)
    expected = (
        of == tenant
        and session in (None, within)
        and (agent is None or agent == by)
        and (before is None or said_or_accepted < before)
        and accepted <= CUTOFF
    )
    facts = Facts(of, within, by, utc_microseconds(said), accepted)
    assert tombstone(Selection(tenant, session, agent, before)).covers(facts) is expected


def test_an_id_is_remembered_by_a_digest_that_tells_a_session_from_a_tenant() -> None:
    assert digest("tenant", "acme") != digest("session", "acme")
    assert digest("agent", None) is None
    assert "acme" not in str(tombstone(Selection("acme", "acme", "acme")))


@given(st.builds(TurnEvent, tenant=IDS, session_id=IDS, agent_id=MAYBE, turn_index=st.just(0), role=st.just("user"),
                 content=st.just("x"), created_at=TIMES))  # fmt: skip
def test_an_event_on_the_stream_is_read_as_the_event_that_it_is(event: TurnEvent) -> None:
    assert Facts.of_payload(event.to_json(), CUTOFF) == Facts.of_event(event, CUTOFF)


@pytest.mark.parametrize(
    ("payload", "known"),
    [
        (b"", False),
        (b"{", False),
        (b"[1]", False),
        (b'{"tenant": "t"}', False),
        (b'{"tenant": 3, "session_id": "s"}', False),
        (b'{"session_id": "s", "created_at": "yesterday"}', False),
        (b'{"session_id": "s", "role": "wizard"}', True),
        (b'{"tenant": "t", "session_id": "s", "turn_index": -1, "created_at": null}', True),
    ],
)
def test_also_an_event_that_breaks_other_rules_is_known_by_whose_it_is(payload: bytes, known: bool) -> None:
    facts = Facts.of_payload(payload, CUTOFF)
    assert (facts is not None) is known
    if facts is not None:
        assert (facts.tenant, facts.session_id) == (json.loads(payload).get("tenant", "default"), "s")


@pytest.mark.parametrize(
    ("selection", "named"),
    [
        ({"tenant": ""}, "tenant"),
        ({"tenant": "t", "session": "x" * 257}, "session"),
        ({"tenant": "t", "agent": ""}, "agent"),
        ({"tenant": "t", "before": datetime(2026, 1, 1)}, "time zone"),  # noqa: DTZ001
        ({"tenant": "t", "before": datetime.fromisoformat("9999-12-31T23:59:59-01:00")}, "years 1 to 9999"),
        ({"tenant": "t", "before": datetime.fromisoformat("0001-01-01T00:00:00+14:00")}, "years 1 to 9999"),
    ],
)
def test_a_selection_that_selects_nothing_sensible_is_refused_by_name(selection: dict[str, object], named: str) -> None:
    with pytest.raises(UsageError, match=named):
        Selection(**selection)  # type: ignore[arg-type]


def test_a_selection_says_what_it_covers() -> None:
    assert str(Selection("acme", "s", "a", NOON)) == "tenant acme, session s, agent a, before 2026-01-31T12:00:00+00:00"
    assert str(Selection("acme")) == "tenant acme"
