"""The days that a question names."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from query.days import LAST_YEAR, MOST_DAYS, YEARS, days_named

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
DAYS = st.dates(date(2000, 1, 1), date(2026, 11, 30))
MONTHS = "January February March April May June July August September October November December".split()
NUMERALS = ["", *"一二三四五六七八九"]


def named(text: str) -> list[str]:
    found = []
    for first, end in days_named(text, NOW, UTC):
        assert end - first == timedelta(1) // timedelta(microseconds=1)
        found.append(datetime.fromtimestamp(first / 1e6, UTC).date().isoformat())
    return found


def han(number: int) -> str:
    tens, ones = divmod(number, 10)
    return (NUMERALS[tens] if tens > 1 else "") + ("十" if tens else "") + NUMERALS[ones]


@given(DAYS)
def test_a_day_with_its_year_is_found_however_it_is_written(day: date) -> None:
    ending = {1: "st", 2: "nd", 3: "rd"}.get(day.day % 10, "th") if day.day not in (11, 12, 13) else "th"
    month = MONTHS[day.month - 1]
    for text in (
        f"What did I say on {month} {day.day}, {day.year}?",
        f"on {month[:3]}. {day.day}{ending} {day.year}",
        f"the {day.day}{ending} of {month.upper()} {day.year}",
        f"log of {day.isoformat()}T10:00",
        f"{day.year}/{day.month}/{day.day}",
        f"我在{day.year}年{day.month}月{day.day}日说了什么？",
        f"{day.year} 年 {han(day.month)} 月 {han(day.day)} 號",
        f"{day.year}년 {day.month}월 {day.day}일에",
    ):
        assert named(text) == [day.isoformat()], text


@given(DAYS)
def test_without_a_year_it_is_that_day_of_each_of_the_last_ten(day: date) -> None:
    expected = []
    for year in range(NOW.year - YEARS + 1, NOW.year + 1):
        try:
            expected.append(day.replace(year=year).isoformat())
        except ValueError:
            assert (day.month, day.day) == (2, 29)
    assert named(f"the museum on {MONTHS[day.month - 1]} {day.day}?") == expected
    assert named(f"{day.month}月{day.day}号的博物馆") == expected
    assert named(f"{han(day.month)}月{han(day.day)}日") == expected


@pytest.mark.parametrize(
    ("text", "days"),
    [
        ("What did I say yesterday?", [1]),
        ("and the day before yesterday", [2]),
        ("3 days ago, or yesterday", [3, 1]),
        ("昨天和前天我们聊了什么", [2, 1]),
        ("大前天呢", [3]),
        ("十五天前", [15]),
        ("12日前", [12]),
    ],
)
def test_days_are_counted_back_from_the_moment_of_the_question(text: str, days: list[int]) -> None:
    assert named(text) == [(NOW.date() - timedelta(back)).isoformat() for back in days]


@pytest.mark.parametrize(
    "text",
    [
        "Which port does the proxy listen on?",
        "it may 5 times out of 10 march 3 steps ahead",
        "June 2023",
        "at June 5:30",
        "5/2",
        "10.12.2023",
        "February 30th, 2024-02-30, 13月40日",
        "release 2024-01-02-03, 1.2024-05-06 and 2024.1.2.3",
        "Dec 5%",
        "May 3.5",
        "what shall I do today?",
        "0000-01-01",
        f"{LAST_YEAR + 1}-01-01",
        "十一十月十十日",
    ],
)
def test_what_is_no_day_names_none(text: str) -> None:
    assert named(text) == []


def test_a_text_with_many_days_is_a_log() -> None:
    days = [f"2026-05-0{number}" for number in range(1, MOST_DAYS + 2)]
    assert named(" ".join(days[:-1])) == days[:-1]
    assert named(" ".join(days)) == []


def test_a_day_is_that_of_the_zone_also_where_clocks_change() -> None:
    berlin = ZoneInfo("Europe/Berlin")
    ((first, end),) = days_named("on March 29th 2026", NOW, berlin)
    assert (end - first) // 3_600_000_000 == 23
    assert datetime.fromtimestamp(first / 1e6, berlin) == datetime(2026, 3, 29, tzinfo=berlin)
    new_year = datetime(2026, 12, 31, 20, tzinfo=UTC)  # already 2027 in Shanghai
    ((first, _),) = days_named("昨天", new_year, ZoneInfo("Asia/Shanghai"))
    assert datetime.fromtimestamp(first / 1e6, UTC) == datetime(2026, 12, 30, 16, tzinfo=UTC)


@given(st.text(st.characters(exclude_categories=("Cs",)) | st.sampled_from("0123456789月日年十-/. May"), max_size=60))
def test_any_text_gives_ordered_spans(text: str) -> None:
    spans = days_named(text, NOW, UTC)
    assert list(spans) == sorted(set(spans))
    assert len(spans) <= MOST_DAYS * YEARS
