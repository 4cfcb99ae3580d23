"""The days that a question names, as people write them in English, Chinese, Japanese and Korean and by ISO 8601. Pure.

    May 2nd, 2 May 2023, May the 2nd · 2023-05-02 · 5月2日, 五月二号, 2023年5月2日, 5월 2일 · yesterday, 3 days ago

Digits alone as in 5/2 are no day here, since half the world reads them the other way round; nor is today, since who
says it mostly means now and not what was said since midnight.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator
from datetime import date, datetime, time, timedelta, tzinfo

from workers.stores.scope import Span

MICROSECONDS = 1_000_000
"""A second has so many."""
MOST_DAYS = 3
"""A text that names more is a log or a plan, and its days say nothing of when it was talked about."""
YEARS = 10
"""How far back a day without a year is looked for."""
FIRST_YEAR, LAST_YEAR = 1900, 9998
READ_CHARS = 4000
"""Of the question, where days are looked for."""

_MONTHS = "jan feb mar apr may jun jul aug sep oct nov dec".split()
_ALSO_WORDS = ("may", "march", "mar")
"""In lower case a month only beside a day's ending or a year: a program may 5 times out of 10 march 3 steps ahead."""
_MONTH = (
    r"\b(?P<month>jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?"
    r"|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)\b\.?"
)
_DAY = r"(?<![\d.,:/-])(?P<day>\d{1,2})(?P<ending>st|nd|rd|th)?\b(?![:./-]\d|%)"
_YEAR = r"(?:,?\s+(?P<year>\d{4})\b)?"
_NUMBER = r"\d{1,2}|[一二三四五六七八九十]{1,3}"
_WRITTEN = [
    re.compile(
        r"(?<![\w.:/-])(?P<year>\d{4})(?P<between>[-/.])(?P<month>\d{1,2})(?P=between)(?P<day>\d{1,2})(?![\d:/-]|\.\d)"
    ),
    re.compile(rf"{_MONTH}\s+(?:the\s+)?{_DAY}{_YEAR}", re.IGNORECASE),
    re.compile(rf"{_DAY}\s+(?:of\s+)?{_MONTH}{_YEAR}", re.IGNORECASE),
    re.compile(
        rf"(?:(?P<year>\d{{4}})\s*[年년]\s*)?(?<![\d一二三四五六七八九十])(?P<month>{_NUMBER})\s*[月월]\s*"
        rf"(?P<day>{_NUMBER})\s*[日号號일]"
    ),
]
_AGO = [
    (re.compile(r"(?<!before )\byesterday\b|\blast night\b|昨天|昨日|昨晚|어제", re.IGNORECASE), 1),
    (re.compile(r"\bday before yesterday\b|(?<!大)前天|一昨日|그저께", re.IGNORECASE), 2),
    (re.compile(r"大前天"), 3),
]
_DAYS_AGO = re.compile(rf"(?P<days>\d{{1,3}})\s+days\s+ago\b|(?P<days_cjk>{_NUMBER})\s*[天日]前", re.IGNORECASE)
_HAN = {digit: value for value, digit in enumerate("一二三四五六七八九", 1)}


def days_named(text: str, now: datetime, zone: tzinfo) -> tuple[Span, ...]:
    """The days that `text` names, read in `zone`: one span each, and for a day without a year one in each of the last
    `YEARS`. Empty where it names none, or more than `MOST_DAYS`. In order of time.

    `now` is the moment that "yesterday" and the last years are counted from.
    """
    today = now.astimezone(zone).date()
    named = set(_named(unicodedata.normalize("NFKC", text[:READ_CHARS]), today))
    if len(named) > MOST_DAYS:
        return ()
    years = range(today.year, today.year - YEARS, -1)
    days = {day for year, month, number in named for day in _days(years if year is None else [year], month, number)}
    return tuple(_span(day, zone) for day in sorted(days))


def _named(text: str, today: date) -> Iterator[tuple[int | None, int, int]]:
    """(year or None, month, day) of each day in the text, whether or not the calendar has it."""
    for pattern in _WRITTEN:
        for found in pattern.finditer(text):
            part = found.groupdict()
            bare = not part.get("ending") and not part["year"]
            if not (bare and part["month"] in _ALSO_WORDS):
                yield int(part["year"]) if part["year"] else None, _month(part["month"]), _number(part["day"])
    for said, ago in _AGO:
        if said.search(text):
            yield _back(today, ago)
    for found in _DAYS_AGO.finditer(text):
        yield _back(today, _number(found["days"] or found["days_cjk"]))


def _back(today: date, days: int) -> tuple[int, int, int]:
    day = today - timedelta(days)
    return day.year, day.month, day.day


def _month(written: str) -> int:
    name = written[:3].lower()
    return _MONTHS.index(name) + 1 if name in _MONTHS else _number(written)


def _number(written: str) -> int:
    """Of digits, and of Chinese numerals to 99; 0 for what is neither."""
    if written.isdecimal():
        return int(written)
    tens, ten, ones = written.rpartition("十")
    if not {*tens, *ones} <= _HAN.keys() or len(tens) > 1 or len(ones) > 1:
        return 0
    return (10 * _HAN.get(tens, 1) if ten else 0) + _HAN.get(ones, 0)


def _days(years: Iterable[int], month: int, number: int) -> Iterator[date]:
    for year in years:
        try:
            day = date(year, month, number)
        except ValueError:  # as the 29th of February in most years
            continue
        if FIRST_YEAR <= year <= LAST_YEAR:
            yield day


def _span(day: date, zone: tzinfo) -> Span:
    first, end = (datetime.combine(one, time(), zone).timestamp() for one in (day, day + timedelta(1)))
    return int(first) * MICROSECONDS, int(end) * MICROSECONDS
