"""A mapping that forgets what was used longest ago, so that it stays small enough for a mark. Pure."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any


class Recent:
    """The `limit` latest entries, text to text."""

    def __init__(self, limit: int, state: Any = None) -> None:
        self._limit = limit
        self._entries: OrderedDict[str, str] = OrderedDict(state or ())

    def get(self, key: str) -> str | None:
        return self._entries.get(key)

    def put(self, key: str, value: str) -> None:
        self._entries[key] = value
        self._entries.move_to_end(key)
        if len(self._entries) > self._limit:
            self._entries.popitem(last=False)

    def state(self) -> list[tuple[str, str]]:
        """JSON from which the constructor makes the same."""
        return list(self._entries.items())
