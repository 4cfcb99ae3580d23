"""Importing transcripts over a real catalog and a real stream: each turn once, whatever is interrupted or copied."""

from __future__ import annotations

import json
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from importing import TEN, Lines, identities, lines, run, sent

from producers.connection import connect
from producers.errors import StreamAway
from producers.events import LIVE_FROM
from producers.keys import Keys
from producers.settings import Settings
from producers.stream import EventStream
from producers.transcripts.port import Bad, ReadOptions
from stepped import Stepped, turn
from workers.backfill import importer as importing
from workers.backfill.building import Target
from workers.backfill.importer import FileToRead, Importer
from workers.backfill.report import Report
from workers.stores.catalog import Catalog
from workers.stores.imports import BESIDE_LIVE

pytestmark = pytest.mark.integration


def test_turns_arrive_in_order_with_their_place_and_a_second_run_sends_nothing(
    live_settings: Settings, catalog: Catalog, file: Path
) -> None:
    first = run(live_settings, catalog, file)
    assert (first.imported, first.already_there, first.bad) == (10, 0, 0)
    assert identities(live_settings) == TEN
    second = run(live_settings, catalog, file)
    assert (second.imported, second.already_there, second.files[0].unchanged) == (0, 10, True)
    assert identities(live_settings) == TEN


def test_a_file_that_has_grown_is_read_from_where_it_ended(
    live_settings: Settings, catalog: Catalog, file: Path
) -> None:
    run(live_settings, catalog, file)
    with file.open("a") as grown:
        grown.write(lines(range(10, 13)))
    report = run(live_settings, catalog, file)
    assert (report.imported, report.already_there) == (3, 0)
    assert [index for _, index, _, _ in identities(live_settings)] == list(range(13))


def test_a_file_that_was_written_anew_is_read_from_its_start_and_known_turns_are_known(
    live_settings: Settings, catalog: Catalog, file: Path
) -> None:
    run(live_settings, catalog, file)
    file.write_text("# a new first line\n" + lines(range(12)))
    report = run(live_settings, catalog, file)
    assert (report.imported, report.already_there, report.left_out()["comment"]) == (2, 10, 1)
    assert [index for _, index, _, _ in identities(live_settings)] == list(range(12))


def test_a_resumed_copy_adds_only_what_it_goes_on_with(
    live_settings: Settings, catalog: Catalog, file: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "resumed.lines"
    copy.write_text(lines(range(10)) + "s2|user|p0|new in the copy\ns|user|p1|goes on in the first session\n")
    report = run(live_settings, catalog, file, copy)
    assert (report.imported, report.already_there) == (12, 10)
    assert identities(live_settings)[10:] == [
        ("s2", 0, "user", "new in the copy"),
        ("s", 10, "user", "goes on in the first session"),
    ]


@pytest.mark.parametrize("step", ["plan", "append", "sent"])
@pytest.mark.parametrize("batches", [(3, 3, 10), (7, 2, 5)])
def test_a_kill_at_any_step_loses_no_turn_and_sends_none_under_two_identities(
    live_settings: Settings,
    catalog: Catalog,
    file: Path,
    monkeypatch: pytest.MonkeyPatch,
    step: str,
    batches: tuple[int, int, int],
) -> None:
    """Killed twice; each run cuts the file into other batches, as the clock makes it do."""

    class Killed(BaseException):
        pass

    owner: Any = EventStream if step == "append" else type(catalog.imports)
    real = getattr(owner, step)
    calls = 0

    def die_after(self: Any, *args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 2 and step == "sent":
            raise Killed  # the turns are on the stream and nobody knows
        answer = real(self, *args, **kwargs)
        if calls == 2:
            raise Killed
        return answer

    for batch in batches[:2]:
        calls = 0
        with monkeypatch.context() as patched:
            patched.setattr(importing, "BATCH", batch)
            patched.setattr(owner, step, die_after)
            with pytest.raises(Killed):
                run(live_settings, catalog, file)
        Stepped(live_settings, "backfill").settle()  # what was sent is stored before the import goes on
    monkeypatch.setattr(importing, "BATCH", batches[2])
    run(live_settings, catalog, file)
    stepped = Stepped(live_settings, "backfill")
    stepped.settle()
    assert stepped.counts() == (10, 10, 10)
    assert sorted(catalog.recent_contents(20)) == sorted(content for *_, content in TEN)


@pytest.mark.parametrize(("live", "first"), [(0, BESIDE_LIVE), (LIVE_FROM, 0)])  # Hermes' go on after it
def test_a_turn_that_was_said_live_is_not_imported_again_and_new_ones_take_no_live_place(
    live_settings: Settings, catalog: Catalog, file: Path, live: int, first: int
) -> None:
    stepped = Stepped(live_settings)
    stepped.push(turn("turn 0", live, tenant="t"), turn("turn 1", live + 1, tenant="t", role="assistant"))
    stepped.settle()
    report = run(live_settings, catalog, file)
    assert (report.imported, report.already_there) == (8, 2)
    assert [index for _, index, _, _ in identities(live_settings)] == list(range(first, first + 8))


def test_tenants_and_prefixes_are_imports_of_their_own(live_settings: Settings, catalog: Catalog, file: Path) -> None:
    for target in (Target("t"), Target("u"), Target("t", session_prefix="old-")):
        assert run(live_settings, catalog, file, target=target).imported == 10
    assert {(e.tenant, e.session_id) for e in sent(live_settings)} == {("t", "s"), ("u", "s"), ("t", "old-s")}


def test_bad_places_are_reported_and_the_rest_is_imported(
    live_settings: Settings, catalog: Catalog, file: Path, tmp_path: Path
) -> None:
    bad = tmp_path / "bad.lines"
    bad.write_text("s|user|a|good\nbroken\n# comment\ns|user|b|good too\n")
    refused = tmp_path / "refused.lines"
    refused.write_text("refused\n")
    report = run(live_settings, catalog, bad, refused, tmp_path / "missing.lines", file)
    assert [one.unreadable for one in report.files] == [None, "it says so", "No such file or directory", None]
    assert report.files[0].bad == [Bad("line 2", "not four fields")]
    assert (report.imported, report.bad, report.left_out()) == (12, 3, {"comment": 1})


def test_what_was_bad_in_a_file_is_told_again_though_it_is_not_read_again(
    live_settings: Settings, catalog: Catalog, tmp_path: Path
) -> None:
    bad = tmp_path / "bad.lines"
    bad.write_text("s|user|a|good\nbroken\nbroken too\ns|user|b|good too\n")
    assert run(live_settings, catalog, bad).bad == 2
    unchanged = run(live_settings, catalog, bad)
    assert (unchanged.files[0].unchanged, unchanged.files[0].bad_earlier, unchanged.bad) == (True, 2, 2)
    with bad.open("a") as grown:
        grown.write("broken as well\n")
    report = run(live_settings, catalog, bad)
    assert (report.files[0].bad_count, report.files[0].bad_earlier, report.bad) == (3, 0, 3), "it may be repaired"
    assert run(live_settings, catalog, bad).bad == 3
    named = run(live_settings, catalog, bad, again=True).files[0].bad
    assert [one.place for one in named] == ["line 2", "line 3", "line 5"]
    bad.write_text("s|user|a|good\ns|user|b|good too\n")
    assert run(live_settings, catalog, bad).bad == 0


def test_a_dry_run_counts_the_same_and_changes_nothing(
    live_settings: Settings, catalog: Catalog, file: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "copy.lines"
    copy.write_text(file.read_text())
    importer = Importer(live_settings, catalog.imports, Target("t"), ReadOptions(), stream=None)
    report = importer.run([FileToRead(file, Lines()), FileToRead(copy, Lines())])
    assert (report.imported, report.already_there) == (10, 10)
    assert [event.content for event in report.examples] == [f"turn {n}" for n in range(importing.EXAMPLES)]
    assert [event.turn_index for event in report.examples] == list(range(importing.EXAMPLES))
    assert sent(live_settings) == []
    assert run(live_settings, catalog, file).imported == 10


def test_again_sends_the_same_turns_under_the_same_identities(
    live_settings: Settings, catalog: Catalog, file: Path
) -> None:
    run(live_settings, catalog, file)
    report = run(live_settings, catalog, file, again=True)
    assert (report.imported, report.already_there) == (10, 0)
    assert identities(live_settings) == TEN * 2


def test_a_rate_is_kept(live_settings: Settings, catalog: Catalog, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(importing, "BATCH", 5)
    monkeypatch.setattr("workers.backfill.importer.time.sleep", slept.append)
    run(live_settings, catalog, file, rate=5.0)
    assert slept
    assert slept[0] == pytest.approx(2 / 5.0, abs=0.2)


def test_the_import_waits_while_the_backfill_stream_is_full(
    live_settings: Settings, catalog: Catalog, file: Path
) -> None:
    full = live_settings.model_copy(update={"backfill_high_water": 10, "append_timeout": 0.05})
    run(full, catalog, file)
    file.write_text(lines(range(12)))
    waits: list[int] = []

    def waited(report: Report, share: float) -> None:
        waits.append(report.imported)
        if len(waits) > 20:
            with connect(full) as client:
                client.xtrim(Keys(full.key_prefix).stream("backfill"), maxlen=0)

    assert run(full, catalog, file, on_progress=waited).imported == 2
    assert len(waits) > 20


def test_a_redis_that_is_away_spools_and_without_a_spool_stops_with_what_was_sent_recorded(
    settings: Settings, file: Path
) -> None:
    settings.data_dir.mkdir()
    with closing(Catalog.open(settings.catalog_location, create=True)) as opened:
        with pytest.raises(StreamAway):
            run(settings.model_copy(update={"spool": False}), opened, file)
        report = run(settings, opened, file)
    assert report.imported == 10
    assert json.loads(json.dumps(report.as_json(seconds=1.0, dry_run=False)))["imported"] == 10


def test_what_a_narrowed_run_left_out_a_later_run_imports(
    live_settings: Settings, catalog: Catalog, file: Path
) -> None:
    narrowed = Target("t", since=datetime(2026, 1, 1, tzinfo=UTC))
    assert run(live_settings, catalog, file, target=narrowed).left_out() == {"no time to compare": 10}
    assert run(live_settings, catalog, file).imported == 10
    assert run(live_settings, catalog, file, target=narrowed).already_there == 0
    assert identities(live_settings) == TEN
