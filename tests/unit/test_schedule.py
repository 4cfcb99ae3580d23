"""When the scheduled jobs are due, and what is refused."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from producers.errors import SettingsError
from producers.settings import load_settings
from workers.schedule import job_id, last_due, maintenance_jobs, next_times, time_to_live

NOON = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)


@pytest.fixture
def zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """The host's time zone, to be set with TZ and `time.tzset`; UTC to begin with."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield monkeypatch
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("cron", "due"),
    [
        ("*/5 * * * *", ["2026-01-31T12:05", "2026-01-31T12:10"]),
        ("0 12 * * *", ["2026-02-01T12:00", "2026-02-02T12:00"]),  # after, not at
        ("30 3 29 2 *", ["2028-02-29T03:30", "2032-02-29T03:30"]),
        ("0 9 * * 1", ["2026-02-02T09:00", "2026-02-09T09:00"]),
        ("@hourly", ["2026-01-31T13:00", "2026-01-31T14:00"]),
        ("0 12 * * fri-mon", ["2026-02-01T12:00", "2026-02-02T12:00", "2026-02-06T12:00"]),
        ("0 12 1 nov-feb *", ["2026-02-01T12:00", "2026-11-01T12:00"]),
        ("50-59/5,0-5/5 13 * * 5-7", ["2026-01-31T13:00", "2026-01-31T13:05", "2026-01-31T13:50"]),
        ("* * * * * */30", ["2026-01-31T12:00:30", "2026-01-31T12:01:00"]),
    ],
)
@pytest.mark.usefixtures("zone")
def test_the_next_times_follow_the_cron_fields(cron: str, due: list[str]) -> None:
    assert [moment.isoformat()[: len(due[0])] for moment in next_times(cron, len(due), NOON)] == due


def test_cron_fields_are_local_time_and_a_repeated_hour_never_goes_back(zone: pytest.MonkeyPatch) -> None:
    zone.setenv("TZ", "Europe/Berlin")
    time.tzset()
    assert next_times("0 9 * * *", 1, NOON)[0] == datetime(2026, 2, 1, 8, 0, tzinfo=UTC)
    repeated = datetime(2026, 10, 25, 1, 10, tzinfo=UTC)  # 02:10 for the second time
    times = next_times("*/15 * * * *", 3, repeated)
    assert times == sorted(times)
    assert times[0] > repeated


@pytest.mark.parametrize(
    "cron", ["", "nope", "61 * * * *", "* * * *", "* * * * * * *", "0 0 30 2 *", "R * * * *", "0 r(1-5) * * *"]
)
def test_what_is_no_cron_expression_is_refused_naming_the_setting_and_the_value(cron: str) -> None:
    settings = load_settings(index_cron="*/5 * * * *").model_copy(update={"index_cron": cron})
    with pytest.raises(SettingsError, match=r"setting index_cron = .*minute hour day month weekday") as refused:
        maintenance_jobs(settings)
    assert repr(cron) in str(refused.value)


@pytest.mark.parametrize("wrong", ["1-0", "5-5", "50-10/15", "3,50-10"])
def test_a_range_of_numbers_that_goes_backwards_is_refused_and_not_taken_for_a_way_round(wrong: str) -> None:
    settings = load_settings().model_copy(update={"index_cron": f"{wrong} * * * *"})
    with pytest.raises(SettingsError, match=r"setting index_cron = .*the range \d+-\d+ does not go from") as refused:
        maintenance_jobs(settings)
    assert "\n" not in str(refused.value)


def test_a_run_is_known_by_name_and_due_time_and_waits_no_longer_than_until_the_next() -> None:
    job = next(job for job in maintenance_jobs(load_settings()) if job.name == "index")
    due = next_times(job.cron, 1, NOON)[0]
    assert job_id(job.name, due) == "index-20260131T120500Z"
    assert time_to_live(job.cron, due) == timedelta(minutes=5)
    assert time_to_live("* * * * * */5", due) == timedelta(minutes=1)


@pytest.mark.usefixtures("zone")
def test_the_last_due_time_is_the_one_before() -> None:
    assert last_due("40 2 * * *", NOON) == datetime(2026, 1, 31, 2, 40, tzinfo=UTC)
    assert last_due("0 13 * * *", NOON) == datetime(2026, 1, 30, 13, 0, tzinfo=UTC)
