"""The words of a text as full-text search knows them: one reading for what is stored and for what is asked. Pure.

LanceDB splits the result at spaces only, then lower-cases and stems. So the words are decided here:

- Scripts written without spaces become characters and pairs of neighbours. It beat the ICU dictionary on every Chinese
  set here (R@50 .97 against .92 on memorybank_zh, .84 against .65 on madial_zh), since a question need not be cut into
  the same words as the turn.
- `retry_after`, `RetryAfter` and `src/app.py` are kept whole and also cut into their parts, so that either finds them.
"""

from __future__ import annotations

import re
import unicodedata
from operator import add

_STRIPPED = "./\\:@-_"

MAX_TERM_CHARS = 100
"""Longer words are cut: nobody asks for more, and encoded data would fill the index."""
MAX_QUESTION_TERMS = 512
"""Terms of a question that are searched; a pasted file holds more than help."""
MAX_QUESTION_CHARS = 32_768
"""Characters of a question that are looked at; enough for `MAX_QUESTION_TERMS` of any text."""
# Blocks of scripts that put no spaces between words (https://www.unicode.org/Public/UNIDATA/Blocks.txt):
# Han, kana, Thai and Lao, Burmese, hangul jamo, Khmer, hangul.
_UNSPACED = (
    "\u2e80-\u2fdf\u3005\u3007\u3021-\u3029\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U000323af"
    "\u3041-\u3096\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff"
    "\u0e01-\u0e3a\u0e40-\u0e4e\u0e50-\u0e59\u0e81-\u0eff\u1000-\u1049\u1050-\u109f"
    "\u1100-\u11ff\u3131-\u318e\u1780-\u17d3\u17d7\u17dc-\u17ff\uac00-\ud7a3"
)
# Marks that belong to a word although `\w` leaves them out: combining accents, Hebrew and Arabic points, Indic signs.
_MARKS = (
    "\u0300-\u036f\u0483-\u0489\u0591-\u05bd\u0610-\u061a\u064b-\u065f\u0670\u06d6-\u06ed\u0900-\u0963\u0966-\u0dff"
)
_JOINERS = r"./\\:@-"
_RUN = re.compile(rf"[\w{_MARKS}{_UNSPACED}]+(?:[{_JOINERS}]+[\w{_MARKS}{_UNSPACED}]+)*")
_ASCII_RUN = re.compile(rf"\w+(?:[{_JOINERS}]+\w+)*", re.ASCII)
_SCRIPT_RUN = re.compile(rf"([{_UNSPACED}]+)")
_JOINED = re.compile(rf"[{_JOINERS}]+")
_BOUNDARY = re.compile(r"_+|(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
"""Where a name is cut: `HTTPServer_v2` is HTTP, Server, v2. Digits stay with their letters: `m3`, `5c0375b4`."""

_FUNCTION_WORDS = """
a about also am an and any are as at be been being but by can could did do does for from had has have he her him
his how i if in into is it its just may me might my no not of on or other our out over she should so some such than
that the their them then there these they this to too up very was we were what when where which who whom why will
with would you your
"""
FUNCTION_WORDS = frozenset(_FUNCTION_WORDS.split())


def terms(text: str) -> list[str]:
    """The search terms of `text`, in order, repeats included; width and composition variants are made one (NFKC)."""
    found: list[str] = []
    if text.isascii():
        for run in _ASCII_RUN.findall(text):
            _add_word(run, found)
        return found
    for run in _RUN.findall(unicodedata.normalize("NFKC", text)):
        if run.isascii():
            _add_word(run, found)
            continue
        for position, piece in enumerate(_SCRIPT_RUN.split(run)):
            if position % 2:
                found += piece
                found += map(add, piece, piece[1:])
            elif word := piece.strip(_STRIPPED):
                _add_word(word, found)
    return found


def search_text(text: str) -> str:
    """What the full-text index stores for `text`: its terms, separated by spaces."""
    return " ".join(terms(text))


def question_terms(text: str) -> tuple[list[str], list[str]]:
    """The first `MAX_QUESTION_TERMS` terms of a question: (content words, function words).

    Repeats stay: a word asked for twice weighs twice, which found a little more on every set.
    """
    asked = [term.lower() for term in terms(text[:MAX_QUESTION_CHARS])[:MAX_QUESTION_TERMS]]
    content = [term for term in asked if term not in FUNCTION_WORDS]
    return content, [term for term in asked if term in FUNCTION_WORDS]


def _add_word(run: str, found: list[str]) -> None:
    """`src/app_main.py` adds src, app, main, py, app_main and the whole."""
    if run.isalpha() and (run.islower() or run[1:].islower()):
        found.append(run[:MAX_TERM_CHARS])  # most words; the checks below find nothing to cut in them
        return
    segments = _JOINED.split(run)
    for segment in segments:
        parts = [part for part in _BOUNDARY.split(segment) if part]
        found += [part[:MAX_TERM_CHARS] for part in parts]
        if len(parts) > 1:
            found.append(segment[:MAX_TERM_CHARS])
    if len(segments) > 1:
        found.append(run[:MAX_TERM_CHARS])
