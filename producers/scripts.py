"""Which writing systems a text uses. Pure; decides whether a model can speak a question's language.

A script stands in for a language: it can be read off the characters, and it is what makes an English-only model
useless on Chinese. Ranges are Unicode blocks (https://www.unicode.org/Public/UNIDATA/Blocks.txt).
"""

from __future__ import annotations

import re

_RANGES = {
    "han": "\u2e80-\u2fdf\u3005\u3007\u3021-\u3029\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U000323af",
    "kana": "\u3040-\u30ff\u31f0-\u31ff\uff66-\uff9f",
    "hangul": "\u1100-\u11ff\u3130-\u318f\uac00-\ud7af",
    "cyrillic": "\u0400-\u052f",
    "arabic": "\u0600-\u06ff\u0750-\u077f",
    "hebrew": "\u0590-\u05ff",
    "devanagari": "\u0900-\u097f",
    "thai": "\u0e00-\u0e7f",
    "greek": "\u0370-\u03ff",
    "latin": "A-Za-z\u00c0-\u024f",
}
_PATTERNS = {name: re.compile(f"[{ranges}]") for name, ranges in _RANGES.items()}
_LATIN_WORD = re.compile(f"[{_RANGES['latin']}]+")

FOREIGN_SHARE = 0.3
"""Share of a text in scripts that a model does not speak from which the model is left out of its score."""


def script_weights(text: str) -> dict[str, float]:
    """Characters of `text` per script, a Latin word counting like one ideograph; empty when it has no letters."""
    weights = {
        name: float(len(pattern.findall(text)))
        for name, pattern in _PATTERNS.items()
        if name != "latin" and pattern.search(text)
    }
    words = len(_LATIN_WORD.findall(text))
    if words:
        weights["latin"] = float(words)
    return weights


def foreign_scripts(text: str, spoken: frozenset[str] | None) -> list[str]:
    """Scripts of `text` outside `spoken`, largest first, if together they pass `FOREIGN_SHARE`; else an empty list.

    `spoken` None means every script.
    """
    if spoken is None:
        return []
    weights = script_weights(text)
    total = sum(weights.values())
    foreign = {name: weight for name, weight in weights.items() if name not in spoken}
    if not total or sum(foreign.values()) / total < FOREIGN_SHARE:
        return []
    return sorted(foreign, key=lambda name: (-foreign[name], name))
