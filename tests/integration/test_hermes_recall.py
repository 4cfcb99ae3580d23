"""What the plug-in asks and erases, and that no call of Hermes waits for it; the service is the test's own."""

from __future__ import annotations

import json
import socket
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from hermes_provider import KEY, Make, contents, eventually, kept, streamed
from hermes_service import FakeService, accept
from producers.api_file import announce
from producers.hermes.provider import ScopeRecallProvider
from producers.hermes.turns import note_session
from producers.settings import Settings

pytestmark = pytest.mark.integration


def test_a_service_that_does_not_know_recent_turns_is_asked_without_the_sessions(
    make_provider: Make, recall_service: FakeService
) -> None:
    def older(path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        if "exclude_recent" in body:
            return 422, {"error": "exclude_recent: unknown field; /openapi.json lists them"}
        return accept(path, body)

    recall_service.answer = older
    provider = make_provider()
    assert "said before" in provider.prefetch("what about the harbour")
    assert "said before" in provider.prefetch("and the pilot")
    names = {"exclude_recent", "exclude_sessions"}
    assert [sorted(body.keys() & names) for body in recall_service.bodies("/v1/recall")] == [
        ["exclude_recent"], ["exclude_sessions"], ["exclude_sessions"],
    ]  # fmt: skip


def test_a_service_that_does_not_know_the_lines_before_is_asked_without_them(
    make_provider: Make, recall_service: FakeService
) -> None:
    def older(path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        newer = next((name for name in ("exclude_recent", "query_context") if name in body), None)
        return (422, {"error": f"{newer}: unknown field; /openapi.json lists them"}) if newer else accept(path, body)

    recall_service.answer = older
    provider = make_provider()
    provider.sync_turn("which ferries go", "two of them", session_id="s")
    assert "said before" in provider.prefetch("and the second one")
    assert "said before" in provider.prefetch("what about the harbour")
    asked = recall_service.bodies("/v1/recall")
    assert [sorted(body.keys() & {"exclude_recent", "query_context"}) for body in asked] == [
        ["exclude_recent", "query_context"], ["query_context"], [], [],
    ]  # fmt: skip


def test_the_sessions_last_lines_go_with_the_question_as_they_were_pushed(
    make_provider: Make, recall_service: FakeService
) -> None:
    provider = make_provider()
    provider.prefetch("which ferries go")
    provider.sync_turn(f"my key is {KEY}", "Noted.", session_id="s")
    provider.sync_turn("somebody else's", "talk", session_id="other")
    provider.prefetch("and the second one")
    provider.on_session_switch("new", reset=True)
    provider.prefetch("which ferries go")
    assert [body.get("query_context") for body in recall_service.bodies("/v1/recall")] == [
        None, "user: my key is [redacted sk- key]\nassistant: Noted.", None,
    ]  # fmt: skip


def test_the_question_is_redacted_scoped_and_within_the_budget(
    make_provider: Make, recall_service: FakeService
) -> None:
    make_provider(budget_ms="800", k="3").prefetch(f"what is {KEY} for")
    (body,) = recall_service.bodies("/v1/recall")
    assert KEY not in json.dumps(body)
    assert body["tenant"].startswith("hermes:default:")
    assert body["k"] == 3
    assert body["deadline_ms"] < 800


def test_a_late_service_costs_a_turn_its_budget_and_is_asked_by_the_next(
    make_provider: Make, recall_service: FakeService, caplog: pytest.LogCaptureFixture
) -> None:
    provider = make_provider(budget_ms="200")
    recall_service.delay = 3.0
    took = []
    for number in range(3):
        started = time.monotonic()
        assert provider.prefetch(f"what about harbour number {number}") == ""
        took.append(time.monotonic() - started)
    assert min(took) >= 0.19
    assert max(took) < 0.4
    said = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len(said) == 1
    assert "did not answer within 0.19 s" in said[0]
    assert "harbour" not in said[0]
    asked = len(recall_service.asked)
    provider.queue_prefetch("nobody needs to look for it")
    assert len(recall_service.asked) == asked
    recall_service.delay = 0.0
    assert "said before" in provider.prefetch("what about the harbour")


def test_a_service_that_is_not_there_is_left_alone_until_it_is_found_between_turns(
    settings: Settings, make_provider: Make, recall_service: FakeService, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        nobody = f"http://127.0.0.1:{taken.getsockname()[1]}"
    sessions = [make_provider(f"s{number}", url="") for number in range(3)]
    gone = announce(settings.data_dir, nobody)
    assert gone is not None
    assert {session.prefetch("what about the harbour") for session in sessions} == {""}
    warned = [record.getMessage() for record in caplog.records if "no service at" in record.getMessage()]
    assert len(warned) == 1, "one line for all sessions"
    gone.close()
    there = announce(settings.data_dir, recall_service.url)
    assert there is not None
    assert sessions[0].prefetch("what about the harbour") == ""
    sessions[0].queue_prefetch("now somebody is there")
    assert "said before" in sessions[0].prefetch("what about the harbour")
    there.close()


def test_an_address_where_nobody_answers_is_left_alone(make_provider: Make) -> None:
    with socket.socket() as full, ExitStack() as callers:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        for _ in range(3):  # nobody accepts them: for the next one there is no room
            caller = callers.enter_context(socket.socket())
            caller.setblocking(False)
            caller.connect_ex(full.getsockname())
        provider = make_provider(url=f"http://127.0.0.1:{full.getsockname()[1]}", budget_ms="300")
        assert provider.prefetch("what about the harbour") == ""
        started = time.monotonic()
        assert provider.prefetch("what about the harbour") == ""
        assert time.monotonic() - started < 0.1


def test_the_key_goes_with_every_question(
    make_provider: Make, recall_service: FakeService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCOPE_RECALL_SERVICE_API_KEY", "sr_key")
    make_provider(tenant="acme").prefetch("what about the harbour")
    assert recall_service.authorization == "Bearer sr_key"
    (body,) = recall_service.bodies("/v1/recall")
    assert body["tenant"] == "acme"
    assert len(body["agents"]) == 1


def test_what_is_forgotten_is_asked_about_first_and_ones_own(make_provider: Make, recall_service: FakeService) -> None:
    provider = make_provider()
    found = json.loads(provider.handle_tool_call("recall", {"query": "harbour"}))["results"][0]
    assert found == {"id": "old#1#4", "role": "user", "said_at": None, "content": "said before"}
    looked = json.loads(provider.handle_tool_call("forget_memory", {"id": found["id"], "tenant": "other"}))
    assert looked["would_erase"] == {"turns": 2, "chunks": 3, "verified": False}
    erased = json.loads(provider.handle_tool_call("forget_memory", {"id": found["id"], "confirm": True}))
    assert erased == {"erased": {"turns": 2, "chunks": 3, "verified": True}, "session": "old#1"}
    (tenant,) = {body["tenant"] for body in recall_service.bodies("/v1/forget")}
    assert tenant.startswith("hermes:default:")
    assert [body["session"] for body in recall_service.bodies("/v1/forget")] == ["old#1", "old#1"]


@pytest.mark.parametrize(
    ("name", "args", "says"),
    [
        ("recall", {}, "query: empty"),
        ("remember", {"content": "  "}, "content: empty"),
        ("forget_memory", {"confirm": True}, "id: give"),
        ("dance", {}, "no tool dance"),
    ],
)
def test_a_tool_that_cannot_do_it_says_why(make_provider: Make, name: str, args: dict[str, Any], says: str) -> None:
    assert says in json.loads(make_provider().handle_tool_call(name, args))["error"]


def test_hermes_own_memory_is_mirrored_as_notes_and_removals_forget_them(
    live_settings: Settings, make_provider: Make, recall_service: FakeService
) -> None:
    note = {"session_id": note_session("Tea with salt."), "turn_index": 0, "content": "Tea with salt."}
    other = {"session_id": "note-other", "turn_index": 0, "content": "Coffee."}
    recall_service.answer = lambda path, body: (
        (200, {"hits": [note, other], "context": ""}) if path == "/v1/recall" else accept(path, body)
    )
    provider = make_provider()
    provider.on_memory_write("add", "user", "Tea with salt.", {})
    eventually(lambda: contents(streamed(live_settings)), ["Tea with salt."])
    assert streamed(live_settings)[0].tags == ("note", "memory-user")
    provider.on_memory_write("replace", "user", "Tea with milk.", {"old_text": "with salt"})
    eventually(lambda: contents(streamed(live_settings)), ["Tea with salt.", "Tea with milk."])
    wanted = {note["session_id"], note_session("with salt")}
    eventually(lambda: {body["session"] for body in recall_service.bodies("/v1/forget")}, wanted)


def test_no_hook_waits_for_a_service_or_a_redis_that_hangs(
    settings: Settings, make_provider: Make, recall_service: FakeService
) -> None:
    provider = make_provider()
    recall_service.delay = 5.0
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


def test_cron_jobs_and_sub_agents_read_and_do_not_write(live_settings: Settings, make_provider: Make) -> None:
    for facts in ({"platform": "cron"}, {"agent_context": "subagent"}):
        provider = make_provider("s", facts)
        provider.sync_turn("one", "a")
        provider.on_delegation("task", "result")
        provider.on_memory_write("add", "user", "note", {})
        assert "said before" in provider.prefetch("what about the harbour")
    assert streamed(live_settings) == []


def test_before_it_is_initialized_and_after_shutdown_it_does_nothing(tmp_path: Path) -> None:
    provider = ScopeRecallProvider()
    provider.sync_turn("one", "a")
    provider.queue_prefetch("one")
    assert (provider.prefetch("what about the harbour"), provider.system_prompt_block()) == ("", "")
    assert "error" in json.loads(provider.handle_tool_call("recall", {"query": "x"}))
    provider.shutdown()
    assert len(provider.get_tool_schemas()) == 3
