"""Which writing systems an embedding model speaks: read off its name, else off its vocabulary. Pure.

A model card states its languages in prose. What can be checked is whether the vocabulary was made for a script: a
tokenizer that spells a common word letter by letter, or has no token for a common ideograph, was not trained on it.
"""

from __future__ import annotations

import re
from collections.abc import Callable

Tokenise = Callable[[str], list[str | None]]
"""text → its tokens without special ones; None stands for an unknown token."""

_ALL = re.compile(r"multilingual|bge-m3|labse|xlm-r|\bjina-embeddings-v[3-9]")
_CHINESE = re.compile(r"(^|[/_-])zh([/_.-]|$)|chinese")

SAMPLES = {
    "latin": "the people have been working with information about development",
    "han": "我们的时间可以没有问题工作生活学习中国人民这个什么知道现在国家学生觉得认为说话开始发展经济",
    "kana": "これはとてもいいものですねありがとうございますコンピューターシステムデータ",
    "hangul": "우리는 사람들이 그리고 있습니다 하지만 대한민국 시간 생각 문제",
    "cyrillic": "который человек время работа сказать россия жизнь после может только",
    "arabic": "الذي كان على هذا التي الناس العمل الوقت بعد قال",
    "hebrew": "אני לא את של הוא אנשים עבודה ישראל זמן אחרי",
    "devanagari": "यह है और में लोग काम समय भारत करना लिए",
    "thai": "การทำงานของเราเป็นประเทศไทยและความรู้สึกที่ดี",
    "greek": "και είναι στην άνθρωπος χρόνος εργασία ελλάδα μετά μπορεί αυτό",
}
"""Everyday words of each script that `producers.scripts` tells apart."""
MIN_KNOWN = 0.97
"""Share of tokens that must be known. bert-base-uncased has a few hundred ideographs and misses this by far."""
MIN_CHARS_PER_TOKEN = {"han": 0.9, "kana": 1.3}
"""Ideographs are tokens of their own; below this they are spelt in bytes. Kana come in words like any alphabet, but
shorter ones; bert-base-uncased has each letter alone."""
MIN_CHARS_PER_TOKEN_ALPHABET = 1.9
"""Letters a token. One that was trained on a script makes 2 to 5; one that only has its letters makes 1."""


def spoken_scripts(name: str, tokenise: Tokenise | None) -> frozenset[str] | None:
    """Scripts by `producers.scripts` name; None means all of them, or that neither name nor vocabulary tells."""
    lowered = name.lower()
    if _ALL.search(lowered):
        return None
    if _CHINESE.search(lowered):
        return frozenset({"han", "latin"})
    if tokenise is None:
        return None
    spoken = frozenset(script for script, sample in SAMPLES.items() if _covers(script, sample, tokenise))
    # A vocabulary that covers nothing, such as a test's, says nothing about languages.
    return None if not spoken or spoken == frozenset(SAMPLES) else spoken


def _covers(script: str, sample: str, tokenise: Tokenise) -> bool:
    tokens = tokenise(sample)
    if not tokens:
        return False
    known = sum(token is not None for token in tokens) / len(tokens)
    letters = sum(not character.isspace() for character in sample)
    return known >= MIN_KNOWN and letters / len(tokens) >= MIN_CHARS_PER_TOKEN.get(script, MIN_CHARS_PER_TOKEN_ALPHABET)
