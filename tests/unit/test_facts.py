"""What metadata says, and what a condition asks of it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from producers.errors import UsageError
from workers.stores.facts import (
    MAX_CONDITIONS,
    check_conditions,
    conditions_of,
    facts_of,
    fingerprints,
    holds,
    json_text,
    parse_condition,
)

TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=8)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3))
METADATA = st.dictionaries(TEXT, VALUES, max_size=4)


def leaves(value: Any, path: str) -> list[tuple[str, Any]]:
    """By hand, what `facts_of` says."""
    if isinstance(value, dict):
        return [leaf for key, inner in value.items() for leaf in leaves(inner, f"{path}.{key}")]
    if isinstance(value, list):
        return [leaf for inner in value for leaf in leaves(inner, path)]
    return [(path, value)]


@given(METADATA)
def test_every_value_is_found_at_its_path_by_its_text_and_has_a_fingerprint(metadata: dict[str, Any]) -> None:
    stored = json.dumps(metadata)
    there = set(fingerprints(facts_of(json.loads(stored))))
    found = [leaf for key, value in metadata.items() for leaf in leaves(value, key)]
    for path, value in found:
        text = value if isinstance(value, str) else json.dumps(value)
        assert holds(stored, ((path, text),))
        assert not holds(stored, ((path, text), ("no such key", text)))
        assert set(fingerprints({path: [json_text(value)]})) <= there
    assert len(there) == len({(path, json_text(value)) for path, value in found})
    assert all(0 <= number < 2**63 for number in there)


@pytest.mark.parametrize(
    ("condition", "metadata", "expected"),
    [
        ("git.branch=main", {"git": {"branch": "main"}}, True),
        ("git.branch=main", {"git.branch": "main"}, True),
        ("git.branch=main", {"git": {"branch": "main2"}}, False),
        ("git=main", {"git": {"branch": "main"}}, False),
        ("count=3", {"count": 3}, True),
        ("count=3", {"count": 3.0}, True),
        ("count=3.0", {"count": 3}, True),
        ("count=3", {"count": "3"}, True),
        ("count=3.0", {"count": "3"}, False),
        ("count=03", {"count": 3}, False),
        ("count=-0", {"count": 0}, True),
        ("count=1e3", {"count": 1000}, True),
        ("count=1e999", {"count": "1e999"}, True),
        ("count=" + "9" * 6000, {"count": "9" * 6000}, True),
        ("count=0.1", {"count": 0.1}, True),
        ("ok=true", {"ok": True}, True),
        ("ok=true", {"ok": "true"}, True),
        ("ok=True", {"ok": True}, False),
        ("ok=1", {"ok": True}, False),
        ("gone=null", {"gone": None}, True),
        ("gone=null", {}, False),
        ("gone=", {"gone": ""}, True),
        ("gone=", {"gone": []}, False),
        ("tools=grep", {"tools": ["ls", "grep"]}, True),
        ("tools.name=grep", {"tools": [{"name": "ls"}, [{"name": "grep"}]]}, True),
        ("a=b=c", {"a": "b=c"}, True),
        ("a=b=c", {"a=b": "c"}, False),
        ("键=值", {"键": "值"}, True),
        ("long=" + "x" * 9000, {"long": "x" * 9000}, True),
        ("long=" + "x" * 8999, {"long": "x" * 9000}, False),
    ],
)
def test_what_a_condition_selects(condition: str, metadata: dict[str, Any], expected: bool) -> None:
    assert holds(json.dumps(metadata), (parse_condition(condition),)) is expected


def test_values_of_one_key_are_alternatives_and_keys_must_all_hold() -> None:
    stored = json.dumps({"a": 1, "b": 2})
    assert holds(stored, ())
    assert holds(stored, (("a", "9"), ("b", "2"), ("a", "1")))
    assert not holds(stored, (("a", "9"), ("b", "2")))


def test_metadata_nested_deeper_than_python_can_recurse_is_read() -> None:
    nested: dict[str, Any] = {"end": 1}
    for _ in range(3000):
        nested = {"a": nested}
    assert facts_of(nested) == {"a." * 3000 + "end": {"1"}}


def test_conditions_come_as_json_too_and_what_cannot_be_asked_is_refused() -> None:
    assert conditions_of({"a": "x", "b": [1, True, None, 2.0]}) == (
        *(("a", "x"), ("b", "1"), ("b", "true"), ("b", "null"), ("b", "2")),
    )
    with pytest.raises(UsageError, match=r"where 'branch': KEY=VALUE is due, such as git\.branch=main"):
        parse_condition("branch")
    for wrong, said in (
        ((("a", "1"),) * (MAX_CONDITIONS + 1), "101 values, over the limit of 100"),
        ((("", "1"),), "a key is missing"),
        ((("a", "\ud800"),), "where 'a': holds a lone surrogate"),
    ):
        with pytest.raises(UsageError, match=said):
            check_conditions(wrong)
