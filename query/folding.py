"""Near-duplicates among the hits: the best stands for them all, so that five hits are five different things. Pure.

A text is folded into a better one by the same speaker that is equal but for case, width and white space, or that says
nearly the same in the same order, where the lesser one has no word of its own, and both have the same numbers,
comparisons and negations: a fact and its correction, or two lines of a log, stay two hits. Chinese, Japanese and Korean
count by the character.

R@5 / MRR of the ranked turns, by what is left of them. "counted": evidence that was folded counts at the hit that
stands for it, which says the same; without that, of two equal documents the one that bears no label can stand first.

                                     none        equal       this        counted     MMR .9      MMR .5
    dureader_demo_zh (documents)     .553/.426   .537/.411   .535/.408   .580/.453   .553/.421   .542/.413
    madial_zh                        .516/.619   .516/.620   .516/.620   .516/.620   .516/.619   .514/.616
    memorybank_en                    .843/.552   .843/.552   .843/.552   .843/.552   .859/.554   .758/.520
    longmemeval_mini                 .815/.867   .815/.867   .815/.867   .815/.867   .787/.862   .704/.876
    mean of seven sets               .664/.609   .662/.607   .662/.606   .668/.613   .663/.607   .625/.598

The other three sets do not change. MMR over the turns' vectors pushes back turns that are alike and yet different, and
keeps equal ones when their scores are high.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from functools import cached_property

NEAR = 0.7
"""Jaccard similarity of shingles from which texts are nearly the same: middle of a plateau, .5 to .9 measured alike."""
SHINGLE = 3
"""Units in a shingle."""
LEAST_UNITS = 8
"""A shorter text is folded only into its equal: each word of it tells it apart."""

_UNIT = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\U00020000-\U0003ffff]|[^\W_]+")
_DECISIVE = re.compile(r"[-+−]?\d(?:[\d.,:/-]*\d)?|[!=<>]=|[<>]|!(?=[\w(])")
_NEGATIONS = frozenset(
    "no not never none nothing nobody neither nor cannot without dont doesnt didnt t 不 没 無 无 非 未 别 勿".split()
)
_FILLERS = frozenset(
    "a an the and so well ok okay yes yeah please thanks again just really very 的 了 呢 吧 啊 呀 哦 嗯".split()
)


class _Text:
    def __init__(self, text: str) -> None:
        self.key = plain(text)
        self._said = _UNIT.findall(self.key)
        self.units = frozenset(self._said) - _FILLERS
        self.decisive = frozenset(_DECISIVE.findall(self.key)) | _NEGATIONS.intersection(self._said)

    @cached_property
    def shingles(self) -> frozenset[tuple[str, ...]]:
        """Empty for a text that is too short to be nearly the same as another. Few texts are asked for theirs."""
        said = self._said
        starts = range(len(said) - SHINGLE + 1) if len(said) >= LEAST_UNITS else ()
        return frozenset(tuple(said[at : at + SHINGLE]) for at in starts)

    def repeats(self, better: _Text) -> bool:
        """Whether it says nothing that `better` does not say in nearly the same words."""
        if self.key == better.key:
            return True
        if self.decisive != better.decisive or not self.units <= better.units:
            return False
        common = len(self.shingles & better.shingles)
        return common > 0 and common >= NEAR * len(self.shingles | better.shingles)


def plain(text: str) -> str:
    """The text without differences of case, width and white space."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def fold(texts: Sequence[str | None], k: int) -> dict[int, list[int]]:
    """Indices of the first k texts that differ → of all others that each of them stands for. `texts` are best first.

    None is a text that is not known whole: it differs from every other.
    """
    kept: dict[int, list[int]] = {}
    read: dict[int, _Text] = {}
    for index, text in enumerate(texts):
        if text is not None:
            read[index] = _Text(text)
            same = next((better for better in kept if better in read and read[index].repeats(read[better])), None)
            if same is not None:
                kept[same].append(index)
                continue
        if len(kept) < k:
            kept[index] = []
    return kept
