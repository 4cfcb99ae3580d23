"""Retention rules as a setting: where they come from, and what is said of a wrong one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from producers.errors import SettingsError
from producers.retention import RetentionRule
from producers.settings import load_settings

RULES = """
[[retention]]
tenant = "acme"
source = "hermes"
max_age_days = 30

[[retention]]
max_turns = 500
ended_days = 7.5
"""


def test_rules_come_from_the_file_and_reach_a_child_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tmp_path / "settings.toml"
    config.write_text(RULES)
    settings = load_settings(config, data_dir=tmp_path)
    assert settings.retention == (
        RetentionRule(tenant="acme", source="hermes", max_age_days=30),
        RetentionRule(max_turns=500, ended_days=7.5),
    )
    for name, value in settings.as_environment().items():
        monkeypatch.setenv(name, value)
    assert load_settings() == settings


def test_without_rules_there_are_none(tmp_path: Path) -> None:
    assert load_settings(data_dir=tmp_path).retention == ()


def test_of_two_rules_the_more_specific_one_has_the_higher_rank() -> None:
    rules = [RetentionRule(tenant=tenant, source=source, max_turns=1) for tenant in "*a" for source in "*s"]
    assert [(rule.tenant, rule.source) for rule in sorted(rules, key=lambda rule: -rule.rank)] == [
        ("a", "s"),
        ("a", "*"),
        ("*", "s"),
        ("*", "*"),
    ]


@pytest.mark.parametrize(
    ("rules", "said"),
    [
        ([{"max_turns": 5}, {"tenant": "a", "max_age_days": -3}], "setting retention, rule 2, max_age_days = -3: "),
        ([{"max_turns": 0}], "setting retention, rule 1, max_turns = 0: "),
        ([{"max_turns": 10**20}], "less than or equal to 1000000000"),
        ([{"ended_days": 1e9}], "less than or equal to 36500"),
        ([{"max_age_days": "soon"}], "setting retention, rule 1, max_age_days = 'soon': "),
        ([{"tenant": "", "max_turns": 1}], "setting retention, rule 1, tenant = ''"),
        ([{"tenant": "a", "max_days": 3}], "unknown field 'max_days'; did you mean max_age_days?"),
        ([{"zzz": 3}], "unknown field 'zzz'; there are tenant, source, max_age_days, max_turns, ended_days"),
        ([{"tenant": "a"}], "it limits nothing: give max_age_days, max_turns or ended_days"),
        ([{"max_turns": 1}, {"max_turns": 2}], "rules 1 and 2 are both for tenant *, source *"),
        ({"max_turns": 1}, "setting retention = "),
    ],
)
def test_a_wrong_rule_is_named_with_its_field(
    rules: object, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCOPE_RECALL_RETENTION", json.dumps(rules))
    with pytest.raises(SettingsError) as refused:
        load_settings(data_dir=tmp_path)
    assert said in str(refused.value)
    assert "SCOPE_RECALL_RETENTION, or in the --config file" in str(refused.value)


def test_rules_that_are_no_json_are_told_by_an_example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCOPE_RECALL_RETENTION", "30 days")
    with pytest.raises(SettingsError, match=r"SCOPE_RECALL_RETENTION: not valid JSON; .*max_age_days"):
        load_settings(data_dir=tmp_path)
