"""High water: how far a stream goes beyond its mark, and what looking costs an append; on a real Redis."""

from __future__ import annotations

import time

import pytest

from producers.connection import connect
from producers.errors import StreamFull
from producers.high_water import LOOK_SECONDS, STEP_EVENTS
from producers.keys import Keys
from producers.settings import Settings
from producers.stream import EventStream
from stepped import turn

pytestmark = pytest.mark.integration

SINGLES = 200


def test_turns_appended_one_by_one_stop_exactly_at_the_mark(live_settings: Settings) -> None:
    settings = live_settings.model_copy(update={"high_water": 30, "append_timeout": 0.2})
    with EventStream(settings) as stream:
        for number in range(30):
            stream.append([turn("hello", number)])
        with pytest.raises(StreamFull):
            stream.append([turn("one too many", 30)])
        assert stream.backlog().length == 30


def test_a_process_goes_beyond_the_mark_by_one_round_trip_at_most_while_others_fill_the_stream(
    live_settings: Settings,
) -> None:
    settings = live_settings.model_copy(update={"high_water": 1000, "append_timeout": 0.2})
    with EventStream(settings) as slow, EventStream(settings) as fast:
        slow.append([turn("a look at an empty stream", 0)])
        fast.append([turn("filler", number) for number in range(1, 1001)])
        before = slow.backlog().length
        with pytest.raises(StreamFull):
            slow.append(turn("more", number) for number in range(2000, 4000))
        assert slow.backlog().length - before <= STEP_EVENTS


def test_redis_is_not_asked_for_its_memory_at_every_append(live_settings: Settings) -> None:
    with EventStream(live_settings) as stream, connect(live_settings) as client:
        before = client.info("commandstats")
        started = time.monotonic()
        for number in range(SINGLES):
            stream.append([turn("hello", number)])
        looks = (time.monotonic() - started) / LOOK_SECONDS + 1
        after = client.info("commandstats")
        assert client.xlen(Keys(live_settings.key_prefix).stream("live")) == SINGLES
    asked = after["cmdstat_xlen"]["calls"] - before.get("cmdstat_xlen", {"calls": 0})["calls"]
    assert asked <= looks + 1
