"""The provider without Hermes: what it sends, recalls and erases, on a real Redis or a service of the test's own."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hermes_service import FakeService, accept, fake_service
from producers.connection import connect
from producers.events import LIVE_FROM, TurnEvent
from producers.hermes.provider import ScopeRecallProvider
from producers.hermes.settings import save
from producers.hermes.turns import note_session
from producers.keys import EVENT_FIELD, Keys
from producers.settings import Settings
from producers.spool import spooled_events

pytestmark = pytest.mark.integration

Make = Callable[..., ScopeRecallProvider]
KEY = "sk-" + "a1b2c3d4" * 6


@pytest.fixture
def service() -> Iterator[FakeService]:
    with fake_service() as found:
        yield found


@pytest.fixture
def make(tmp_path: Path, settings: Settings, service: FakeService) -> Iterator[Make]:
    """Makes a provider in the same home, each as a new process would."""
    made = []

    def one(session: str = "s", facts: dict[str, Any] | None = None, **changes: Any) -> ScopeRecallProvider:
        home = tmp_path / "home"
        save({"data_dir": str(settings.data_dir), "url": service.url, **changes}, home)
        provider = ScopeRecallProvider()
        provider.initialize(session, hermes_home=str(home), **({"platform": "cli"} | (facts or {})))
        made.append(provider)
        return provider

    yield one
    for provider in made:
        provider.shutdown()


def streamed(settings: Settings) -> list[TurnEvent]:
    with connect(settings) as client:
        entries: Any = client.xrange(Keys(settings.key_prefix).stream("live"))
    return [TurnEvent.model_validate_json(fields[EVENT_FIELD]) for _, fields in entries]


def kept(settings: Settings) -> list[TurnEvent]:
    return [TurnEvent.model_validate_json(record.payload) for record in spooled_events(settings)]


def eventually(found: Callable[[], Any], wanted: Any) -> None:
    deadline = time.monotonic() + 10
    while found() != wanted:
        assert time.monotonic() < deadline, (found(), wanted)
        time.sleep(0.02)


def contents(events: list[TurnEvent]) -> list[str]:
    return [event.content for event in events]


def test_both_turns_are_on_the_stream_when_sync_turn_returns(live_settings: Settings, make: Make) -> None:
    make().sync_turn(f"my key is {KEY}\x00", "Noted.", session_id="s")
    question, answer = streamed(live_settings)
    assert (question.role, question.turn_index, answer.role, answer.turn_index) == (
        "user", LIVE_FROM, "assistant", LIVE_FROM + 1,
    )  # fmt: skip
    assert question.content == "my key is [redacted sk- key]\N{REPLACEMENT CHARACTER}"
    assert question.source == "hermes-live"
    assert question.created_at is not None
    assert question.metadata == {"platform": "cli"}
    assert question.tenant.startswith("hermes:default:")


def test_a_turn_told_again_after_a_restart_is_the_same_turn(live_settings: Settings, make: Make) -> None:
    make().sync_turn("one", "a", session_id="s")
    make().sync_turn("one", "a", session_id="s")
    make().sync_turn("two", "b", session_id="s")
    assert len({event.key for event in streamed(live_settings)}) == 4


def test_without_redaction_a_turn_is_sent_as_it_is(live_settings: Settings, make: Make) -> None:
    make(redact="false").sync_turn(f"my key is {KEY}", "Noted.")
    assert streamed(live_settings)[0].content == f"my key is {KEY}"


def test_without_redis_turns_are_on_the_disk_when_sync_turn_returns_and_arrive_later(
    settings: Settings, make: Make
) -> None:
    provider = make()
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


def test_a_redis_that_hangs_costs_a_turn_a_second_and_the_next_ones_nothing(settings: Settings, make: Make) -> None:
    with socket.create_server(("127.0.0.1", 0)) as hanging:
        provider = make(redis_url=f"redis://127.0.0.1:{hanging.getsockname()[1]}")
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
    live_settings: Settings, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCOPE_RECALL_HIGH_WATER", "2")
    monkeypatch.setenv("SCOPE_RECALL_APPEND_TIMEOUT", "0.1")
    provider = make()
    for number in range(3):
        provider.sync_turn(f"question {number}", "a")
    assert len(streamed(live_settings)) == 2
    assert len(kept(live_settings)) == 4
    with connect(live_settings) as client:
        client.delete(Keys(live_settings.key_prefix).stream("live"))
    eventually(lambda: contents(streamed(live_settings))[:2], ["question 1", "a"])


def test_after_an_undo_the_new_turn_takes_the_place_of_the_one_taken_back(live_settings: Settings, make: Make) -> None:
    provider = make()
    for text in ("one", "two", "three"):
        provider.sync_turn(text, "a", session_id="s")
    provider.on_session_switch("s", rewound=True)
    history = [{"role": "user", "content": text, "api_content": "recalled"} for text in ("one", "anew")]
    provider.sync_turn("anew", "b", session_id="s", messages=history)
    by_key = {event.key: event.content for event in streamed(live_settings)}
    assert sorted(by_key.values()) == ["a", "a", "anew", "b", "one", "three"]


def test_a_switch_to_another_session_names_its_parent_and_leaves_it_out_of_recall(
    live_settings: Settings, make: Make, service: FakeService
) -> None:
    provider = make()
    provider.on_session_switch("branch", parent_session_id="s", reason="branch")
    provider.sync_turn("one", "a", session_id="branch")
    assert streamed(live_settings)[0].metadata["parent_session"] == "s"
    provider.prefetch("what about the harbour")
    (body,) = service.bodies("/v1/recall")
    assert {recent["session_id"] for recent in body["exclude_recent"]} == {"s", "branch"}


def test_a_service_that_does_not_know_recent_turns_is_asked_without_the_sessions(
    make: Make, service: FakeService
) -> None:
    def older(path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        if "exclude_recent" in body:
            return 422, {"error": "exclude_recent: unknown field; /openapi.json lists them"}
        return accept(path, body)

    service.answer = older
    provider = make()
    assert "said before" in provider.prefetch("what about the harbour")
    assert "said before" in provider.prefetch("and the pilot")
    assert [sorted(body.keys() & {"exclude_recent", "exclude_sessions"}) for body in service.bodies("/v1/recall")] == [
        ["exclude_recent"], ["exclude_sessions"], ["exclude_sessions"],
    ]  # fmt: skip


def test_the_question_is_redacted_scoped_and_within_the_budget(make: Make, service: FakeService) -> None:
    make(budget_ms="800", k="3").prefetch(f"what is {KEY} for")
    (body,) = service.bodies("/v1/recall")
    assert KEY not in json.dumps(body)
    assert body["tenant"].startswith("hermes:default:")
    assert body["k"] == 3
    assert body["deadline_ms"] < 800


def test_a_late_service_costs_one_budget_and_is_then_left_alone(
    make: Make, service: FakeService, caplog: pytest.LogCaptureFixture
) -> None:
    provider = make(budget_ms="200")
    service.delay = 3.0
    took = []
    for number in range(4):
        started = time.monotonic()
        assert provider.prefetch(f"what about harbour number {number}") == ""
        took.append(time.monotonic() - started)
    assert 0.2 <= took[0] < 0.4
    assert max(took[1:]) < 0.05
    said = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len(said) == 1
    assert "did not answer within 0.2 s" in said[0]
    assert "harbour" not in said[0]
    provider.queue_prefetch("the turn is over; healthz answers at once")
    service.delay = 0.0
    assert "said before" in provider.prefetch("what about the harbour"), (
        "asked again as soon as it is known to be there"
    )


def test_over_http_turns_wait_in_the_outbox_for_a_service_that_has_none_of_it_twice(
    settings: Settings, make: Make, service: FakeService
) -> None:
    service.answer = lambda path, body: (503, {"error": "the stream is full"})
    provider = make(transport="http")
    provider.sync_turn("one", "a", session_id="s")
    provider.shutdown()
    eventually(lambda: len(service.bodies("/v1/turns")) > 0, True)
    service.asked.clear()
    service.answer = accept
    again = make(transport="http")
    again.sync_turn("two", "b", session_id="s")
    again.shutdown()
    sent = [turn["content"] for body in service.bodies("/v1/turns") for turn in body["turns"]]
    assert sent == ["one", "a", "two", "b"]
    assert not settings.data_dir.exists(), "nothing of it goes by the stream"


def test_over_http_a_turn_the_service_will_never_take_does_not_stop_the_others(
    make: Make, service: FakeService
) -> None:
    def choosy(path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        turns = body["turns"]
        if any(len(turn["content"]) > 100 for turn in turns):
            return 413, {"error": "too large"}
        rejected = {"status": "rejected", "field": "content", "reason": "no"}
        return 202, {"results": [rejected if turn["content"] == "bad" else {"status": "accepted"} for turn in turns]}

    service.answer = choosy
    provider = make(transport="http")
    for text in ("good", "bad", "x" * 200, "better"):
        provider.sync_turn(text, "a", session_id="s")
    provider.shutdown()
    service.asked.clear()
    last = make(transport="http")
    last.sync_turn("last", "b", session_id="s")
    last.shutdown()
    sent = [turn["content"] for body in service.bodies("/v1/turns") for turn in body["turns"]]
    assert sent == ["last", "b"]


def test_the_key_goes_with_every_question(make: Make, service: FakeService, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCOPE_RECALL_API_KEY", "sr_key")
    make(tenant="acme").prefetch("what about the harbour")
    assert service.authorization == "Bearer sr_key"
    (body,) = service.bodies("/v1/recall")
    assert body["tenant"] == "acme"
    assert len(body["agents"]) == 1


def test_what_is_forgotten_is_asked_about_first_and_ones_own(make: Make, service: FakeService) -> None:
    provider = make()
    found = json.loads(provider.handle_tool_call("recall", {"query": "harbour"}))["results"][0]
    assert found == {"id": "old#1#4", "role": "user", "said_at": None, "content": "said before"}
    looked = json.loads(provider.handle_tool_call("forget_memory", {"id": found["id"], "tenant": "other"}))
    assert looked["would_erase"] == {"turns": 2, "chunks": 3, "verified": False}
    erased = json.loads(provider.handle_tool_call("forget_memory", {"id": found["id"], "confirm": True}))
    assert erased == {"erased": {"turns": 2, "chunks": 3, "verified": True}, "session": "old#1"}
    (tenant,) = {body["tenant"] for body in service.bodies("/v1/forget")}
    assert tenant.startswith("hermes:default:")
    assert [body["session"] for body in service.bodies("/v1/forget")] == ["old#1", "old#1"]


@pytest.mark.parametrize(
    ("name", "args", "says"),
    [
        ("recall", {}, "query: empty"),
        ("remember", {"content": "  "}, "content: empty"),
        ("forget_memory", {"confirm": True}, "id: give"),
        ("dance", {}, "no tool dance"),
    ],
)
def test_a_tool_that_cannot_do_it_says_why(make: Make, name: str, args: dict[str, Any], says: str) -> None:
    assert says in json.loads(make().handle_tool_call(name, args))["error"]


def test_hermes_own_memory_is_mirrored_as_notes_and_removals_forget_them(
    live_settings: Settings, make: Make, service: FakeService
) -> None:
    note = {"session_id": note_session("Tea with salt."), "turn_index": 0, "content": "Tea with salt."}
    other = {"session_id": "note-other", "turn_index": 0, "content": "Coffee."}
    service.answer = lambda path, body: (
        (200, {"hits": [note, other], "context": ""}) if path == "/v1/recall" else accept(path, body)
    )
    provider = make()
    provider.on_memory_write("add", "user", "Tea with salt.", {})
    eventually(lambda: contents(streamed(live_settings)), ["Tea with salt."])
    assert streamed(live_settings)[0].tags == ("note", "memory-user")
    provider.on_memory_write("replace", "user", "Tea with milk.", {"old_text": "with salt"})
    eventually(lambda: contents(streamed(live_settings)), ["Tea with salt.", "Tea with milk."])
    wanted = {note["session_id"], note_session("with salt")}
    eventually(lambda: {body["session"] for body in service.bodies("/v1/forget")}, wanted)


def test_no_hook_waits_for_a_service_or_a_redis_that_hangs(
    settings: Settings, make: Make, service: FakeService
) -> None:
    provider = make()
    service.delay = 5.0
    started = time.monotonic()
    provider.on_turn_start(1, "hello")
    provider.on_delegation("task", "result")
    provider.on_memory_write("replace", "user", "new", {"old_text": "old"})
    provider.on_memory_write("remove", "memory", "", {"old_text": "old"})
    assert provider.on_pre_compress([]) == ""
    provider.on_session_switch("t", parent_session_id="s", reason="compression")
    provider.on_session_end([])
    assert time.monotonic() - started < 0.5
    assert sorted(contents(kept(settings))) == ["new", "result", "task"]
    started = time.monotonic()
    provider.shutdown()
    assert time.monotonic() - started < 5


def test_cron_jobs_and_sub_agents_read_and_do_not_write(live_settings: Settings, make: Make) -> None:
    for facts in ({"platform": "cron"}, {"agent_context": "subagent"}):
        provider = make("s", facts)
        provider.sync_turn("one", "a")
        provider.on_delegation("task", "result")
        provider.on_memory_write("add", "user", "note", {})
        assert "said before" in provider.prefetch("what about the harbour")
    assert streamed(live_settings) == []


def test_several_sessions_of_a_home_may_write_at_once(live_settings: Settings, make: Make) -> None:
    providers = [make(f"s{number}") for number in range(4)]

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


def test_before_it_is_initialized_and_after_shutdown_it_does_nothing(tmp_path: Path) -> None:
    provider = ScopeRecallProvider()
    provider.sync_turn("one", "a")
    provider.queue_prefetch("one")
    assert (provider.prefetch("what about the harbour"), provider.system_prompt_block()) == ("", "")
    assert "error" in json.loads(provider.handle_tool_call("recall", {"query": "x"}))
    provider.shutdown()
    assert len(provider.get_tool_schemas()) == 3
