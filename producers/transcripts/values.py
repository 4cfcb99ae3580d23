"""Values out of JSON objects that may hold anything. Pure."""

from __future__ import annotations

from typing import Any


def string(value: Any) -> str:
    """The value if it is a text, else nothing."""
    return value if isinstance(value, str) else ""


def mapping(value: Any) -> dict[str, Any]:
    """The value if it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def object_at(value: dict[str, Any], name: str) -> dict[str, Any]:
    """The object under a name; an empty one where something else stands."""
    return mapping(value.get(name))


def facts(**values: Any) -> dict[str, Any]:
    """Metadata out of what a record says; what is no text, or blank, is left out."""
    return {name: value for name, value in values.items() if isinstance(value, str) and value.strip()}


def text_at(value: dict[str, Any], name: str) -> str:
    """The text under a name; an empty one where something else stands."""
    return string(value.get(name))
