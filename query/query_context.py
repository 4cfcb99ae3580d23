"""The lines before a question: what of them is read with it. Pure.

A question in the middle of a talk ("and what about the second one?") says little without them. So its vector leans
towards that of the question with the lines before it, unit(question + weight · both): cosines add up, so each candidate
is scored by the sum of the two, and the question still decides when the talk was about something else.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

READ_CHARS = 600
"""Of the lines and the question together, the end, an ideograph or syllable counting for two: reading takes time."""
_WIDE = re.compile("[\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\uff00-\uffef\U00020000-\U000323af]")
_CLOSING = " \t\r\n\"'”’」』"
_NAME_ALONE = re.compile(r"(?:^|\n)[^\n:：]{0,80}[:：][\s\"'“‘「『]*\Z")
"""What is left of a line `Ada: "…"` without what she said."""


@dataclass(frozen=True)
class InContext:
    """A question with the lines before it."""

    text: str
    weight: float
    """What its vector counts for, against 1 for the question's own."""


def in_context(question: str, context: str, weight: float) -> InContext | None:
    """The question with the end of its context; None when that adds nothing: no weight, no lines but the question
    itself, or a question that is as long as all that is read."""
    asked = question.strip()
    room = READ_CHARS - _size(asked)
    if not weight or room <= 0:
        return None
    before = _end(_without(context, asked), room)
    return InContext(f"{before}\n{asked}", weight) if before else None


def leaning(question: np.ndarray, both: np.ndarray, weight: float) -> np.ndarray:
    """The question's vector, leaning towards that of question and context; all of length 1."""
    leant: np.ndarray = question + weight * both
    length = np.linalg.norm(leant)
    return leant / length if length else question


def _without(context: str, asked: str) -> str:
    """The context without the question, which a caller may give as its last line; it is not to count twice."""
    said, last = context.rstrip(_CLOSING), asked.rstrip(_CLOSING)
    if not last or not said.endswith(last):
        return context.strip()
    return _NAME_ALONE.sub("", said[: -len(last)]).rstrip()


def _end(text: str, room: int) -> str:
    """The last characters that fit, from the beginning of a line or else of a word, if there is one in their first
    half."""
    end = text[-room:]
    while (size := _size(end)) > room:
        end = end[-max(1, len(end) * room // size) :] if len(end) > 1 else ""
    if len(end) == len(text):
        return text
    for mark in "\n", " ":
        cut = end.find(mark, 0, len(end) // 2)
        if cut >= 0:
            return end[cut + 1 :].strip()
    return end.strip()


def _size(text: str) -> int:
    return len(text) + len(_WIDE.findall(text))
