"""The plug-in's settings file: what Hermes' set-up writes, what a person writes, and what is wrong with either."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from producers.api_file import API_FILE, announce
from producers.errors import SettingsError
from producers.hermes.settings import DEFAULT_URL, FILE, HermesSettings, load, save, schema


def test_a_home_without_a_file_has_the_defaults(tmp_path: Path) -> None:
    settings = load(tmp_path)
    assert settings == HermesSettings.model_validate({})
    assert (settings.transport, settings.budget_ms, settings.redact) == ("stream", 1500, True)


def test_what_the_set_up_asks_for_comes_as_texts_and_is_kept(tmp_path: Path) -> None:
    asked = {field["key"]: str(field["default"]) for field in schema() if not field.get("secret")}
    assert set(asked) == set(HermesSettings.model_fields)
    save(asked, tmp_path)
    assert load(tmp_path) == HermesSettings.model_validate({})
    save({"budget_ms": "900", "redact": "false", "url": " http://10.0.0.1:8420/ "}, tmp_path)
    found = load(tmp_path)
    assert (found.budget_ms, found.redact) == (900, False)
    assert found.service_url(tmp_path) == "http://10.0.0.1:8420"
    assert save({"url": ""}, tmp_path).url == "", "an empty answer takes a setting back"
    assert not list(tmp_path.glob("*.tmp"))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"budget": 1}', "unknown setting 'budget'; did you mean budget_ms?"),
        ('{"xyzzy": 1}', "unknown setting 'xyzzy'; there are transport"),
        ('{"budget_ms": 9000}', "setting budget_ms = 9000: Input should be less than or equal to 7000"),
        ('{"transport": "pigeon"}', "setting transport = 'pigeon'"),
        ("[]", "a JSON object is due"),
        ("{", "not valid JSON"),
    ],
)
def test_a_mistake_names_file_setting_and_value(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / FILE).write_text(text)
    with pytest.raises(SettingsError) as caught:
        load(tmp_path)
    assert str(caught.value).startswith(f"{tmp_path / FILE}: ")
    assert says in str(caught.value)


def test_the_service_is_found_where_it_says_it_listens(tmp_path: Path) -> None:
    settings = load(tmp_path)
    assert settings.service_url(tmp_path) == DEFAULT_URL
    announcement = announce(tmp_path, "http://127.0.0.1:9")
    assert announcement is not None
    assert settings.service_url(tmp_path) == "http://127.0.0.1:9"
    announcement.close()
    assert settings.service_url(tmp_path) == DEFAULT_URL


def test_what_a_killed_service_said_of_itself_is_not_believed(tmp_path: Path) -> None:
    """Somebody else may listen there now: questions, turns and the key are not for them."""
    left = {"url": "http://127.0.0.1:9", "pid": os.getpid()}  # the number of a process that lives says nothing
    (tmp_path / API_FILE).write_text(json.dumps(left))
    assert load(tmp_path).service_url(tmp_path) == DEFAULT_URL


def test_turns_never_wait_longer_than_hermes_does_and_are_always_spooled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCOPE_RECALL_SPOOL", "false")
    common = load(tmp_path).common()
    assert common.append_timeout <= 2
    assert common.spool
    save({"data_dir": str(tmp_path / "d"), "redis_url": "redis://h:1"}, tmp_path)
    common = load(tmp_path).common()
    assert (common.data_dir, common.redis_url) == (tmp_path / "d", "redis://h:1")
