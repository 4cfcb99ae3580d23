"""Values in LangGraph's msgpack, as plain lists and objects; nothing that they name is imported or called. Pure."""

from __future__ import annotations

from typing import Any

_CLASS_CODES = frozenset({2, 4, 5})
"""Extensions that hold (module, class, keyword arguments, …): a plain class, pydantic 1, pydantic 2."""
_ARGUMENT_CODES = frozenset({0, 1, 3})
"""Extensions that hold (module, name, arguments, …) of a value such as a UUID, a set or a time."""
_SNAPSHOT_CODE = 7
"""The extension that holds a value alone: a channel that keeps differences."""
_MAX_DEPTH = 20
"""Extensions inside extensions; each takes 32 KiB of the C stack."""


def value_of(data: bytes) -> Any:
    """The value; a class becomes `{"type": "constructor", "id": [module, class], "kwargs": …}`, as in LangChain's JSON.

    Raises `ValueError` where the data is no msgpack.
    """
    return _unpacked(data, 0)


def _unpacked(data: bytes, depth: int) -> Any:
    import msgpack

    def extension(code: int, inner: bytes) -> Any:
        return _extension(code, inner, depth + 1)

    try:
        return msgpack.unpackb(data, ext_hook=extension, strict_map_key=False, unicode_errors="replace", timestamp=0)
    except (ValueError, TypeError, RecursionError, msgpack.UnpackException):
        raise ValueError("not valid msgpack") from None


def _extension(code: int, data: bytes, depth: int) -> Any:
    if depth > _MAX_DEPTH:
        return None
    if code == _SNAPSHOT_CODE:
        return _unpacked(data, depth)
    if code not in _CLASS_CODES | _ARGUMENT_CODES:
        return None  # an array of numbers, or something newer
    parts = _unpacked(data, depth)
    if not isinstance(parts, list) or len(parts) < _PARTS:
        return None
    if code in _ARGUMENT_CODES:
        return parts[2]
    return {"type": "constructor", "id": parts[:2], "kwargs": parts[2]}


_PARTS = 3
