"""The words of candidate texts, counted once and kept for the questions to come. Pure, but for what it remembers."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from threading import Lock

from workers.stores.terms import terms

KEPT_TEXTS = 4096
"""About 30 MB. Cutting a turn into words takes .1 ms, so that a pool of hundreds is worth keeping."""


@dataclass(frozen=True)
class Words:
    """How often a text holds each of its words."""

    counts: Mapping[str, int]
    total: int


class WordCounts:
    """Words by text, the most recently used. Safe for several threads."""

    def __init__(self, kept: int = KEPT_TEXTS) -> None:
        self._kept = kept
        self._words: OrderedDict[str, Words] = OrderedDict()
        self._lock = Lock()

    def of(self, text: str) -> Words:
        """The text's words as full-text search knows them, lower-case."""
        with self._lock:
            known = self._words.get(text)
            if known is not None:
                self._words.move_to_end(text)
                return known
        counts = Counter(map(str.lower, terms(text)))
        words = Words(counts, counts.total())
        with self._lock:
            self._words[text] = words
            if len(self._words) > self._kept:
                self._words.popitem(last=False)
        return words
