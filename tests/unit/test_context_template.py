"""The context block's template: what it may hold, and errors that name the line and the field."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from producers.context_template import DEFAULT_TEMPLATE, FIELDS, ContextTemplate
from producers.errors import SettingsError
from producers.settings import load_settings
from query.around import Entry, Neighbour
from query.context import fields_of

ENTRY = "$citation\n$content\n"


def test_a_template_falls_apart_into_opening_entry_and_closing() -> None:
    template = ContextTemplate.parse("<m>\nPrices in $$.\n- $citation ${who}\n$content\n- $time\n</m>")
    assert (template.opening, template.closing) == ("<m>\nPrices in $.", "</m>")
    values = {"citation": "[1]", "who": "user $time", "time": "noon"}
    assert template.before_content(values) == ["- [1] user $time"], "a value is not read as a template"
    assert template.after_content(values) == ["- noon"]
    assert ContextTemplate.parse(ENTRY).frame_chars == 0


def test_every_field_that_is_documented_has_a_value() -> None:
    entry = Entry(Neighbour("s", 3, "user", None, datetime(2026, 1, 31, tzinfo=UTC), "x", 1), 1)
    assert fields_of(entry).keys() | {"content"} == FIELDS.keys()
    assert ContextTemplate.parse("\n".join(f"${name}" for name in FIELDS)).before_content(fields_of(entry))[0] == "[1]"


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ("$citation\n$contents", "line 2: unknown field $contents; did you mean $content?"),
        ("$Citation\n$content", "line 1: unknown field $Citation; did you mean $citation?"),
        (f"$zzz\n{ENTRY}", "line 1: unknown field $zzz; there are $citation, $place"),
        (f"costs 5 $\n{ENTRY}", "line 1: a $ that begins no field; write $$"),
        ("${content.__class__}", "line 1: a $ that begins no field"),
        (f"{ENTRY}</$role>", "line 3: a tag named by a field"),
        ("$citation", "needs $content once, alone on its line"),
        (f"{ENTRY}$content", "needs $content once"),
        ("$citation $content", "needs $content once, alone"),
        ("$content", "needs $citation"),
        ("", "needs $content"),
        (f"~~~\n{ENTRY}~~~", "line 1 opens a code fence"),
        (ENTRY + "x" * 4000, "over the limit of 4,000"),
        (f"{'x' * 7900}\n{ENTRY}"[-3999:], "raise context_chars to"),
    ],
)
def test_a_bad_template_is_refused_at_the_start_by_the_name_of_its_setting(template: str, said: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load_settings(context_template=template, context_chars=2000)
    assert str(caught.value).startswith("setting context_template = ")
    assert said in str(caught.value)


def test_a_block_too_small_for_its_own_frame_is_refused_also_with_the_default_template() -> None:
    with pytest.raises(SettingsError, match=r"context_chars = 100 for what is recalled; .* raise context_chars to \d+"):
        load_settings(context_chars=100)


def test_the_template_reaches_a_child_process(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = load_settings(context_template=f"<m>\n{ENTRY}</m>", context_tokens=500, context_order="time")
    for name, value in settings.as_environment().items():
        monkeypatch.setenv(name, value)
    assert load_settings() == settings
    assert load_settings(context_template=DEFAULT_TEMPLATE).context_template == DEFAULT_TEMPLATE
