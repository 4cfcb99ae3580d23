"""What a turn's metadata says, as facts that a recall can filter by: a path of keys, and a JSON value there. Pure.

A path is the keys joined by dots, so `git.branch` names the key `branch` inside `git` and the key `git.branch` alike.
What stands in a list stands at the list's own path. The vector store keeps 63 bits of a digest for each fact: any
value can be filtered by whatever its length, and nothing of it is there to be erased.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from producers.errors import UsageError

Condition = tuple[str, str]
"""(path, value as text). Those of one path are alternatives; each path must hold one of its own."""
MAX_CONDITIONS = 100
"""In one question."""
_DIGEST_BYTES = 8
_END_OF_PATH = b"\xff"
"""In no UTF-8, so that no path and value are told apart otherwise than they were put together."""
_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")


def facts_of(metadata: Mapping[str, Any]) -> dict[str, set[str]]:
    """The JSON values by path; an empty list or object has none."""
    found: dict[str, set[str]] = {}
    waiting: list[tuple[str, Any]] = list(metadata.items())
    while waiting:  # no recursion: what JSON can be nested to may be more than Python can
        path, value = waiting.pop()
        if isinstance(value, Mapping):
            waiting += [(f"{path}.{key}", inner) for key, inner in value.items()]
        elif isinstance(value, (list, tuple)):
            waiting += [(path, inner) for inner in value]
        else:
            found.setdefault(path, set()).add(json_text(value))
    return found


def json_text(value: str | float | bool | None) -> str:
    """A value as JSON has it; numbers that are equal have one text, so that 3.0 is 3."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return json.dumps(value, ensure_ascii=False)


def meanings(text: str) -> tuple[str, ...]:
    """The JSON values that `text` stands for: the string, and the number, boolean or null that it spells."""
    string = json_text(text)
    if text in ("true", "false", "null"):
        return (string, text)
    if not _NUMBER.fullmatch(text):
        return (string,)
    if text.lstrip("-").isdigit():
        return (string, "0" if text == "-0" else text)
    return (string, json_text(float(text)))


def facts_asked(conditions: Iterable[Condition]) -> dict[str, set[str]]:
    """By path, the JSON values of which a turn must have one."""
    found: dict[str, set[str]] = {}
    for path, text in conditions:
        found.setdefault(path, set()).update(meanings(text))
    return found


def holds(metadata: str, conditions: Iterable[Condition]) -> bool:
    """Whether a turn with this metadata, in JSON, meets the conditions."""
    asked = facts_asked(conditions)
    if not asked:
        return True
    there = facts_of(json.loads(metadata))
    return all(not values.isdisjoint(there.get(path, ())) for path, values in asked.items())


def fingerprints(facts: Mapping[str, Iterable[str]]) -> tuple[int, ...]:
    """One number below 2**63 for each fact, in ascending order."""
    found = set()
    for path, values in facts.items():
        beginning = hashlib.blake2b(path.encode() + _END_OF_PATH, digest_size=_DIGEST_BYTES)
        for value in values:
            digest = beginning.copy()
            digest.update(value.encode())
            found.add(int.from_bytes(digest.digest(), "big") >> 1)
    return tuple(sorted(found))


def parse_condition(text: str) -> Condition:
    """Reads KEY=VALUE; the value may hold `=` itself. Raises `UsageError`."""
    path, equals, value = text.partition("=")
    if not equals:
        raise UsageError(f"where {text[:300]!a}: KEY=VALUE is due, such as git.branch=main")
    return path, value


def conditions_of(fields: Any) -> tuple[Condition, ...]:
    """Reads {KEY: VALUE} or {KEY: [VALUE, …]}, as JSON has it. Raises `UsageError`."""
    if not isinstance(fields, Mapping):
        raise UsageError(f'where: an object is due, such as {{"git.branch": "main"}}, got {type(fields).__name__}')
    found = []
    for path, values in fields.items():
        if values in ([], ()):
            raise UsageError(f"where {path[:300]!a}: no value; leave the key out to allow any")
        for value in values if isinstance(values, (list, tuple)) else [values]:
            if not isinstance(value, str | int | float | None):
                raise UsageError(f"where {path[:300]!a}: strings, numbers, true, false or null are due")
            found.append((path, value if isinstance(value, str) else json_text(value)))
    return tuple(found)


def check_conditions(conditions: tuple[Condition, ...]) -> None:
    """Raises `UsageError` for what no turn could be asked for."""
    if len(conditions) > MAX_CONDITIONS:
        raise UsageError(f"where: {len(conditions):,} values, over the limit of {MAX_CONDITIONS}")
    for path, value in conditions:
        if not path:
            raise UsageError("where: a key is missing; KEY=VALUE is due, such as git.branch=main")
        try:
            f"{path}{value}".encode()
        except UnicodeEncodeError:
            raise UsageError(f"where {path[:300]!a}: holds a lone surrogate, which is not text; remove it") from None
