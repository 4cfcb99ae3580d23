"""Values out of JSON objects that may hold anything. Pure."""

from __future__ import annotations

from typing import Any


def object_at(value: dict[str, Any], name: str) -> dict[str, Any]:
    """The object under a name; an empty one where something else stands."""
    found = value.get(name)
    return found if isinstance(found, dict) else {}


def facts(**values: Any) -> dict[str, Any]:
    """Metadata out of what a record says; what is no text, or blank, is left out."""
    return {name: value for name, value in values.items() if isinstance(value, str) and value.strip()}


def text_at(value: dict[str, Any], name: str) -> str:
    """The text under a name; an empty one where something else stands."""
    found = value.get(name)
    return found if isinstance(found, str) else ""
