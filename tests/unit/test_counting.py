"""Counting a text: literal, whatever its case and width, in every script."""

from __future__ import annotations

import unicodedata
from datetime import UTC, datetime

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from producers.errors import UsageError
from producers.events import utc_microseconds
from query import counting
from query.counting import Number, Spoken, count
from workers.stores.history import Said


@pytest.mark.parametrize(
    ("text", "content", "times"),
    [
        ("port", "The PORT, the Port and the airport", 3),
        ("100%", "100% of 1000", 1),
        ("a_b", "a_b aXb", 1),
        (".*", "a.*b", 1),
        ("'; DROP", "it's '; drop", 1),
        ("证书", "证书过期了，换证书", 2),
        ("，", "证书过期了，换证书", 1),
        (",", "证书过期了，换证书", 1),
        ("STRASSE", "eine straße", 1),
        ("straße", "EINE STRASSE", 1),
        ("привет", "ПРИВЕТ, привет", 2),
        ("ΟΔΟΣ", "οδος οδός", 1),
        ("tls", "ＴＬＳ und TLS", 2),
        ("ＴＬＳ", "since tls", 1),
        ("a b", "a\u3000b", 1),
        ("ガス", "ｶﾞｽ", 1),
        ("ｶﾞｽ", "ガス", 1),
        ("パ", "ﾊﾟ", 1),
        ("café", "cafe\u0301", 1),
        ("cafe\u0301", "CAFÉ", 1),
        ("x2", "x²", 0),
        ("aa", "aaaa", 2),
        ("\n", "two\nlines", 1),
        ("🦓", "🦓🦓", 2),
    ],
)
def test_a_text_is_found_as_a_reader_would(text: str, content: str, times: int) -> None:
    assert Spoken(text).times_in(content) == times


letters = st.text(alphabet="aAaＡａ1１，, 　ガガｶｶﾞｽス证书書ßsSéÉe", max_size=12)


@given(text=letters.filter(bool), content=letters)
@example(text="カ", content="ｶ")
def test_it_is_what_folding_every_letter_of_both_would_find(text: str, content: str) -> None:
    def folded(value: str) -> str:
        value = value.casefold()
        for written, letter in counting._WIDTHS:
            value = value.replace(written, letter)
        return unicodedata.normalize("NFC", value)

    # Half a voiced kana is the one that is let through: its mark is left alone unless its letter is looked for.
    expected = folded(content).count(folded(text))
    found = Spoken(text).times_in(content)
    assert found == expected or (found > expected and "ｶﾞ" in content)


def test_widths_are_those_that_unicode_names() -> None:
    for written, letter in counting._WIDTHS:
        assert unicodedata.normalize("NFKC", written).casefold() == unicodedata.normalize("NFKC", letter).casefold()
    assert {"ａ", "｡", "ｶﾞ", "￥", "\u3000"} <= {written for written, _ in counting._WIDTHS}


def said(session: str, day: int | None, content: str) -> Said:
    moment = datetime(2026, 1, day, 23, 59, 59, 999999, tzinfo=UTC) if day else None
    return Said(session, utc_microseconds(moment), content)


TURNS = [
    said("a", 2, "one port"),
    said("b", 1, "port port"),
    said("b", None, "Port"),
    said("b", 2, "port"),
    said("c", 3, "nothing"),
]


def test_turns_and_times_are_counted_in_all_by_day_and_by_session() -> None:
    assert count("port", None, TURNS).as_json() == {"text": "port", "turns": 4, "times": 5}
    by_day = count("port", "day", iter(TURNS)).as_json()
    assert by_day["groups"] == [
        {"day": "2026-01-01", "turns": 1, "times": 2},
        {"day": "2026-01-02", "turns": 2, "times": 2},
        {"day": None, "turns": 1, "times": 1},
    ]
    assert (by_day["by"], by_day["turns"], by_day["left_out"]) == ("day", 4, 0)
    by_session = count("port", "session", TURNS).as_json()
    assert by_session["groups"] == [{"session": "b", "turns": 3, "times": 4}, {"session": "a", "turns": 1, "times": 1}]
    assert count("xyz", "day", TURNS).as_json()["groups"] == []


def test_days_reach_to_both_ends_of_the_calendar() -> None:
    ends = [datetime(1, 1, 1, tzinfo=UTC), datetime(1969, 12, 31, 23, tzinfo=UTC), datetime.max.replace(tzinfo=UTC)]
    counted = count("x", "day", [Said("s", utc_microseconds(end), "x") for end in ends])
    assert list(counted.groups) == ["0001-01-01", "1969-12-31", "9999-12-31"]


def test_only_the_latest_days_and_the_fullest_sessions_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counting, "MAX_GROUPS", 2)
    by_day = count("port", "day", TURNS)
    assert by_day.listed() == [("2026-01-02", Number(2, 2)), (None, Number(1, 1))]
    assert (by_day.left_out, by_day.all) == (1, Number(4, 5))
    more = [*TURNS, said("d", 1, "port port")]
    assert [name for name, _ in count("port", "session", more).listed()] == ["b", "d"]


@pytest.mark.parametrize(
    ("text", "reason"), [("", "text: empty"), ("x" * 100_001, "100,001 characters"), ("\ud800", "surrogate")]
)
def test_what_no_turn_says_is_refused(text: str, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        count(text, None, [])
