"""Turn events as JSON Lines: passed through, and told by line where `push` would refuse them."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path

from builders import REPLY, turns
from reading import read

from producers.events import TurnEvent
from producers.transcripts.port import Bad, Event
from producers.transcripts.turns import Turns


def test_events_pass_through_as_they_are(tmp_path: Path) -> None:
    full = TurnEvent(
        tenant="acme",
        agent_id="a1",
        session_id="s1",
        turn_index=1,
        role="tool",
        content=REPLY,
        created_at=datetime.fromisoformat("2026-01-02T03:04:05+02:00"),
        tags=("tool-result",),
        metadata={"tool": "recall"},
    )
    short = TurnEvent(session_id="s1", turn_index=0, role="user", content="Which port?")
    assert read(Turns(), turns(tmp_path)) == [Event(short, "line 1"), Event(full, "line 2")]


def test_what_push_refuses_is_told_by_line_without_its_content(tmp_path: Path) -> None:
    good = {"session_id": "s", "turn_index": 0, "role": "user", "content": "secret"}
    lines = [
        good | {"turn_index": "secret"},
        good | {"role": "secret"},
        good | {"created_at": "2026-01-02T03:04:05"},
        good | {"content": "secret \x00"},
        good | {"content": "secret \ud800"},
        good | {"secret": 1},
        {"session_id": "s"},
        good,
    ]
    path = tmp_path / "turns.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    items = read(Turns(), path)
    assert [type(item) for item in items] == [Bad] * 7 + [Event]
    assert [item.place for item in items] == [f"line {i}" for i in range(1, 9)]
    told = [item.reason for item in items if isinstance(item, Bad)]
    assert [reason.partition(":")[0] for reason in told] == [
        "turn_index",
        "role",
        "created_at",
        "content",
        "content",
        "secret",
        "turn_index",
    ]
    assert not any("secret" in reason for reason in told if not reason.startswith("secret: unknown field"))


def test_lines_that_are_no_json_are_told_and_the_rest_is_read(tmp_path: Path) -> None:
    path = turns(tmp_path)
    path.write_bytes(b"{broken\n\n" + path.read_bytes())
    items = read(Turns(), path)
    assert items[0] == Bad("line 1", "not valid JSON")
    assert [item.place for item in items[1:]] == ["line 3", "line 4"]  # type: ignore[union-attr]
