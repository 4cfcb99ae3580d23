"""Which message of a Codex rollout is which, in every copy of it. Pure.

A message stands in a rollout up to three times (as item, as event, as completed item), and a fork or sub-agent copies
history, in whole or without calls, with new times. What a copy keeps are the turns' ids and the texts. Rollouts before
2026 have no turn ids; there the conversation's id and the user's messages so far take their place.
"""

from __future__ import annotations

from typing import Any

from producers.transcripts.text import digest

TEXTS_REMEMBERED = 200
"""Different texts of one turn that are told from repeats; turns of some hundred steps have fewer messages."""


class Turns:
    """The turn that a rollout stands in, and what was said in it and in the one before."""

    def __init__(self, state: Any = None) -> None:
        turn, anchor, seen = state or ("", "", [])
        self._turn: str = turn
        self._anchor: str = anchor
        self._seen: dict[str, _Count] = {key: _Count(*count) for key, *count in seen}

    def state(self) -> Any:
        """JSON from which the constructor makes the same."""
        return [self._turn, self._anchor, [[key, *count.state()] for key, count in self._seen.items()]]

    @property
    def turn(self) -> str:
        """The current turn's id; empty where there is none."""
        return self._turn

    def conversation(self, identifier: str) -> None:
        """What follows was said in this conversation, the rollout's own or the one that it copies."""
        self._turn, self._anchor = "", digest("conversation", identifier)
        self._next()

    def begin(self, turn: str) -> None:
        """A turn begins, or goes on."""
        if turn and turn != self._turn:
            self._turn, self._anchor = turn, digest("turn", turn)
            self._next()

    def message(self, role: str, text: str, source: str) -> str | None:
        """The origin of a message; None when another source has brought it already."""
        key = digest(role, "".join(text.split()))
        count = self._seen.setdefault(key, _Count())
        if not count.is_new(source):
            return None
        origin = digest("codex", self._anchor, key, count.number)
        if role == "user" and not self._turn:
            self._anchor = digest(self._anchor, key)
            self._next()
        if len(self._seen) > TEXTS_REMEMBERED:
            del self._seen[next(iter(self._seen))]
        return origin

    def call(self, kind: str, identifier: str, text: str) -> str:
        """The origin of a call or a result."""
        return digest("codex", self._anchor, kind, identifier, text)

    def _next(self) -> None:
        """Repeats of what was just said can still come; what is older can only be said anew."""
        self._seen = {key: count for key, count in self._seen.items() if count.touched}
        for count in self._seen.values():
            count.turn_over()


class _Count:
    """How often each source has brought a text, and how often it was said."""

    def __init__(self, said: int = 0, before: int = 0, touched: bool = True, sources: Any = ()) -> None:
        self._said = said
        self._before = before
        """Of `said`, in earlier turns."""
        self.touched = touched
        self._sources: dict[str, int] = dict(sources)

    @property
    def number(self) -> int:
        """The how manieth time in this turn."""
        return self._said - self._before

    def is_new(self, source: str) -> bool:
        self.touched = True
        brought = self._sources[source] = self._sources.get(source, 0) + 1
        if brought <= self._said:
            return False
        self._said = brought
        return True

    def turn_over(self) -> None:
        self._before, self.touched = self._said, False

    def state(self) -> tuple[int, int, bool, list[list[Any]]]:
        return self._said, self._before, self.touched, [list(pair) for pair in self._sources.items()]
