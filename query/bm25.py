"""BM25 of the candidates of one question, over each one's own words and those of the turns around it. Pure.

An answer is found by its question: on dialogues the words of the neighbours find more than any other single choice.

    score = Σ over the question's words  weight · idf · tf (k1 + 1) / (tf + k1 (1 - b + b · length / mean length))

with tf and length of the text itself plus a share of its neighbours' (Robertson & Zaragoza 2009; the shares are a
BM25F over the conversation). How rare a word is, is counted in the pool, in the candidates' own words: measured equal
to counting it in the whole table, which full-text search does not tell.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from query.words import Words
from workers.stores.terms import FUNCTION_WORD_WEIGHT

K1 = 1.2
B = 0.3
"""Lower than the usual .75: neighbours lengthen a text without diluting it."""


@dataclass(frozen=True)
class Document:
    """A candidate's words, and its neighbours' with the share that each counts."""

    own: Words
    around: Sequence[tuple[float, Words]] = ()

    @property
    def length(self) -> float:
        return self.own.total + sum(share * words.total for share, words in self.around)

    def frequency(self, word: str) -> float:
        """How often the word occurs, a neighbour's by its share."""
        return self.own.counts.get(word, 0) + sum(share * words.counts.get(word, 0) for share, words in self.around)


def bm25(content: Sequence[str], function: Sequence[str], documents: Sequence[Document]) -> NDArray[np.float64]:
    """One score a document, at least 0. `content` and `function`: the question's words (`terms.question_terms`)."""
    lengths = np.array([one.length for one in documents])
    mean = float(lengths.mean()) if len(documents) else 0.0
    if not mean:
        return np.zeros(len(documents))
    normal = K1 * (1 - B + B * lengths / mean)
    weights: Counter[str] = Counter()
    for words, weight in ((content, 1.0), (function, FUNCTION_WORD_WEIGHT if content else 1.0)):
        for word in words:
            weights[word] += weight  # type: ignore[assignment]  # a Counter of floats works as one of integers
    scores = np.zeros(len(documents))
    for word, weight in weights.items():
        frequency = np.array([one.frequency(word) for one in documents])
        if frequency.any():
            holding = sum(word in one.own.counts for one in documents)
            idf = math.log1p((len(documents) - holding + 0.5) / (holding + 0.5))
            scores += weight * idf * frequency * (K1 + 1) / (frequency + normal)
    return scores
