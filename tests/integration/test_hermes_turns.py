"""What the plug-in sends, on a real Redis or to a service of the test's own: every turn, once, whatever is away."""

from __future__ import annotations

import socket
import threading
import time
from typing import Any

import pytest

from hermes_provider import KEY, Make, contents, eventually, kept, streamed
from hermes_service import FakeService, accept
from producers.connection import connect
from producers.events import LIVE_FROM
from producers.keys import Keys
from producers.settings import Settings

pytestmark = pytest.mark.integration


def test_both_turns_are_on_the_stream_when_sync_turn_returns(live_settings: Settings, make_provider: Make) -> None:
    make_provider().sync_turn(f"my key is {KEY}\x00", "Noted.", session_id="s")
    question, answer = streamed(live_settings)
    assert (question.role, question.turn_index, answer.role, answer.turn_index) == (
        "user", LIVE_FROM, "assistant", LIVE_FROM + 1,
    )  # fmt: skip
    assert question.content == "my key is [redacted sk- key]\N{REPLACEMENT CHARACTER}"
    assert question.source == "hermes-live"
    assert question.created_at is not None
    assert question.metadata == {"platform": "cli"}
    assert question.tenant.startswith("hermes:default:")


def test_a_turn_told_again_after_a_restart_is_the_same_turn(live_settings: Settings, make_provider: Make) -> None:
    make_provider().sync_turn("one", "a", session_id="s")
    make_provider().sync_turn("one", "a", session_id="s")
    make_provider().sync_turn("two", "b", session_id="s")
    assert len({event.key for event in streamed(live_settings)}) == 4


def test_without_redaction_a_turn_is_sent_as_it_is(live_settings: Settings, make_provider: Make) -> None:
    make_provider(redact="false").sync_turn(f"my key is {KEY}", "Noted.")
    assert streamed(live_settings)[0].content == f"my key is {KEY}"


def test_without_redis_turns_are_on_the_disk_when_sync_turn_returns_and_arrive_later(
    settings: Settings, make_provider: Make
) -> None:
    provider = make_provider()
    started = time.monotonic()
    for number in range(20):
        provider.sync_turn(f"question {number}", f"answer {number}")
    provider.on_delegation("count the boats", "there are nine", child_session_id="child")
    assert time.monotonic() - started < 5
    wanted = [text for number in range(20) for text in (f"question {number}", f"answer {number}")]
    assert sorted(contents(kept(settings))) == sorted([*wanted, "count the boats", "there are nine"])
    from workers.supervision.redis_server import embedded_redis

    with embedded_redis(settings):
        eventually(lambda: len(streamed(settings)), 42)
        assert [text for text in contents(streamed(settings)) if text in wanted] == wanted, "in order"
        assert kept(settings) == []


def test_that_redis_is_away_is_said_once_for_all_sessions(
    settings: Settings, make_provider: Make, caplog: pytest.LogCaptureFixture
) -> None:
    sessions = [make_provider(f"s{number}") for number in range(5)]
    for session in sessions:
        session.sync_turn("question", "answer")
        session.shutdown()
    said = [record.getMessage() for record in caplog.records if record.name == "scope_recall.hermes"]
    assert len(said) == 1, said
    assert "no Redis at" in said[0]


def test_a_redis_that_hangs_costs_a_turn_a_second_and_the_next_ones_nothing(
    settings: Settings, make_provider: Make
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as hanging:
        provider = make_provider(redis_url=f"redis://127.0.0.1:{hanging.getsockname()[1]}")
        took = []
        for number in range(3):
            started = time.monotonic()
            provider.sync_turn(f"question {number}", "a")
            took.append(time.monotonic() - started)
        assert took[0] < 2.0
        assert max(took[1:]) < 0.5
        assert len(kept(settings)) == 6
        started = time.monotonic()
        provider.shutdown()
        assert time.monotonic() - started < 5


def test_a_full_stream_delays_a_turn_and_loses_none(
    live_settings: Settings, make_provider: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCOPE_RECALL_HIGH_WATER", "2")
    monkeypatch.setenv("SCOPE_RECALL_APPEND_TIMEOUT", "0.1")
    provider = make_provider()
    for number in range(3):
        provider.sync_turn(f"question {number}", "a")
    assert len(streamed(live_settings)) == 2
    assert len(kept(live_settings)) == 4
    with connect(live_settings) as client:
        client.delete(Keys(live_settings.key_prefix).stream("live"))
    eventually(lambda: contents(streamed(live_settings))[:2], ["question 1", "a"])


def test_after_an_undo_the_new_turn_takes_the_place_of_the_one_taken_back(
    live_settings: Settings, make_provider: Make
) -> None:
    provider = make_provider()
    for text in ("one", "two", "three"):
        provider.sync_turn(text, "a", session_id="s")
    provider.on_session_switch("s", rewound=True)
    history = [{"role": "user", "content": text, "api_content": "recalled"} for text in ("one", "anew")]
    provider.sync_turn("anew", "b", session_id="s", messages=history)
    by_key = {event.key: event.content for event in streamed(live_settings)}
    assert sorted(by_key.values()) == ["a", "a", "anew", "b", "one", "three"]


def test_a_switch_to_another_session_names_its_parent_and_leaves_it_out_of_recall(
    live_settings: Settings, make_provider: Make, recall_service: FakeService
) -> None:
    provider = make_provider()
    provider.on_session_switch("branch", parent_session_id="s", reason="branch")
    provider.sync_turn("one", "a", session_id="branch")
    assert streamed(live_settings)[0].metadata["parent_session"] == "s"
    provider.prefetch("what about the harbour")
    (body,) = recall_service.bodies("/v1/recall")
    assert {recent["session_id"] for recent in body["exclude_recent"]} == {"s", "branch"}


def test_over_http_turns_wait_in_the_outbox_for_a_service_that_has_none_of_it_twice(
    settings: Settings, make_provider: Make, recall_service: FakeService
) -> None:
    recall_service.answer = lambda path, body: (503, {"error": "the stream is full"})
    provider = make_provider(transport="http")
    provider.sync_turn("one", "a", session_id="s")
    provider.shutdown()
    eventually(lambda: len(recall_service.bodies("/v1/turns")) > 0, True)
    recall_service.asked.clear()
    recall_service.answer = accept
    again = make_provider(transport="http")
    again.sync_turn("two", "b", session_id="s")
    again.shutdown()
    sent = [turn["content"] for body in recall_service.bodies("/v1/turns") for turn in body["turns"]]
    assert sent == ["one", "a", "two", "b"]
    assert not settings.data_dir.exists(), "nothing of it goes by the stream"


def test_over_http_a_turn_the_service_will_never_take_does_not_stop_the_others(
    make_provider: Make, recall_service: FakeService
) -> None:
    def choosy(path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        turns = body["turns"]
        if any(len(turn["content"]) > 100 for turn in turns):
            return 413, {"error": "too large"}
        rejected = {"status": "rejected", "field": "content", "reason": "no"}
        return 202, {"results": [rejected if turn["content"] == "bad" else {"status": "accepted"} for turn in turns]}

    recall_service.answer = choosy
    provider = make_provider(transport="http")
    for text in ("good", "bad", "x" * 200, "better"):
        provider.sync_turn(text, "a", session_id="s")
    provider.shutdown()
    recall_service.asked.clear()
    last = make_provider(transport="http")
    last.sync_turn("last", "b", session_id="s")
    last.shutdown()
    sent = [turn["content"] for body in recall_service.bodies("/v1/turns") for turn in body["turns"]]
    assert sent == ["last", "b"]


def test_several_sessions_of_a_home_may_write_at_once(live_settings: Settings, make_provider: Make) -> None:
    providers = [make_provider(f"s{number}") for number in range(4)]

    def talk(number: int) -> None:
        for turn in range(10):
            providers[number].sync_turn(f"question {turn}", "a", session_id=f"s{number}")

    threads = [threading.Thread(target=talk, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    events = streamed(live_settings)
    assert len({event.key for event in events}) == len(events) == 80
