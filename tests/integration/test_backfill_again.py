"""Files that are imported again: in another format, repaired, finished, rewritten; sessions that are live as well."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from pathlib import Path

import pytest
from importing import TEN, Lines, identities, lines, run, sent

from producers.events import MAX_TURN_INDEX
from producers.settings import Settings
from producers.transcripts.turns import Turns
from stepped import Stepped, turn
from workers.backfill.building import Target
from workers.stores.catalog import Catalog
from workers.stores.imports import BESIDE_LIVE

pytestmark = pytest.mark.integration


class Others(Lines):
    """Another format, which takes every line for something that is no conversation."""

    name = "others"


def test_a_file_that_was_read_in_a_wrong_format_is_read_in_the_right_one(
    live_settings: Settings, catalog: Catalog, file: Path
) -> None:
    file.write_text(file.read_text().replace("s|", "#|", 1))
    assert run(live_settings, catalog, file, reader=Turns()).imported == 0
    assert run(live_settings, catalog, file, reader=Others()).imported == 10
    assert run(live_settings, catalog, file).already_there == 10


@pytest.mark.parametrize("then", ["s|user|o5|turn 5\n", "s|user|o5|turn 5\n" + lines(range(6, 12))])
def test_a_bad_place_that_is_repaired_or_finished_is_read(
    live_settings: Settings, catalog: Catalog, file: Path, then: str
) -> None:
    file.write_text(lines(range(5)) + "s|user|o5 turn 5\n")
    assert run(live_settings, catalog, file).bad == 1
    file.write_text(lines(range(5)) + then)
    report = run(live_settings, catalog, file)
    assert (report.imported, report.bad) == (then.count("\n"), 0)
    assert run(live_settings, catalog, file).bad == 0


def test_a_file_that_was_written_to_within_is_read_from_its_start(
    live_settings: Settings, catalog: Catalog, file: Path
) -> None:
    rows = lines(range(400))
    file.write_text(rows.replace("|o200|turn 200", "|o200#turn 200"))
    run(live_settings, catalog, file, target=Target("t"))
    file.write_text(rows.replace("|o200|turn 200", "|o9200|turn 20"))  # as long as before, alike at both ends
    os.utime(file, (1, 1))
    assert run(live_settings, catalog, file).imported == 1


def test_imported_turns_and_live_ones_never_take_each_others_place(
    live_settings: Settings, catalog: Catalog, file: Path
) -> None:
    stepped = Stepped(live_settings)
    file.write_text(lines(range(2)))
    run(live_settings, catalog, file)
    stepped.push(*[turn(f"live {n}", n, tenant="t") for n in (2, 3)])
    stepped.settle()
    with file.open("a") as grown:
        grown.write(lines(range(2, 5)))
    assert run(live_settings, catalog, file).imported == 3
    stepped.push(*[turn(f"live {n}", n, tenant="t") for n in (4, 5, 6)])
    stepped.settle()
    imported = [index for _, index, _, _ in identities(live_settings)]
    assert imported == [0, 1, BESIDE_LIVE, BESIDE_LIVE + 1, BESIDE_LIVE + 2]


def test_turn_events_keep_what_they_say_and_get_the_rest_from_the_options(
    live_settings: Settings, catalog: Catalog, tmp_path: Path
) -> None:
    rows = [
        {"tenant": "other", "agent_id": "a", "session_id": "s", "turn_index": 0, "created_at": "2026-01-31T09:00:00Z"},
        {"session_id": "s", "turn_index": MAX_TURN_INDEX, "created_at": "2026-01-31T09:00:00Z"},
        {"session_id": "s", "turn_index": 2, "created_at": "2020-01-31T09:00:00Z"},
        {"session_id": "s", "turn_index": 3},
    ]
    path = tmp_path / "events.jsonl"
    path.write_text("".join(json.dumps({"role": "user", "content": "hi", **row}) + "\n" for row in rows))
    target = Target("acme", "mine", "old-", since=datetime(2025, 1, 1, tzinfo=UTC))
    report = run(live_settings, catalog, path, target=target, reader=Turns())
    assert (report.imported, report.left_out()) == (2, {"outside the time range": 1, "no time to compare": 1})
    assert [(e.tenant, e.agent_id, e.session_id) for e in sent(live_settings)] == [
        ("other", "a", "old-s"),
        ("acme", "mine", "old-s"),
    ]
    other = tmp_path / "more.lines"
    other.write_text("s|user|o1|a later import into that session\n")
    run(live_settings, catalog, other, target=Target("acme", session_prefix="old-"))
    assert sent(live_settings)[-1].turn_index == 0


def test_a_file_name_that_is_no_text_is_imported_and_named(
    live_settings: Settings, catalog: Catalog, tmp_path: Path
) -> None:
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/a\xff\xfeb.lines"))
    path.write_text(lines(range(10)))
    report = run(live_settings, catalog, path)
    assert report.files[0].path == f"{tmp_path}/a\\xff\\xfeb.lines"
    assert identities(live_settings) == TEN
    assert run(live_settings, catalog, path).files[0].unchanged
