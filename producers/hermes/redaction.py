"""Secrets out of a text, by the shapes of well-known keys. Pure.

Only shapes that no word and no ordinary identifier has: a false alarm would change what somebody said. The issuer's
prefix stays, so that a reader sees what kind of key was there.
"""

from __future__ import annotations

import re

MARK = "[redacted {}]"

_LETTERS = r"[A-Za-z0-9_-]"
_BEGIN = r"(?<![A-Za-z0-9_-])"
_MIXED = r"(?=[A-Za-z_-]*[0-9])(?=[A-Za-z0-9_-]*[A-Za-z])"
"""A key has digits and letters: `sk-learn-some-very-long-name` has none of the former."""
_END = r"(?![A-Za-z0-9_-])"

_SHAPES: tuple[tuple[str, re.Pattern[str]], ...] = (
    (
        "private key",
        re.compile(
            r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----.*?(?:-----END [A-Z0-9 ]{0,40}-----|\Z)", re.S
        ),
    ),
    ("token", re.compile(rf"{_BEGIN}eyJ[A-Za-z0-9_-]{{8,}}\.eyJ[A-Za-z0-9_-]{{8,}}\.[A-Za-z0-9_-]{{8,}}")),  # JWT
    ("sk- key", re.compile(rf"{_BEGIN}(?:sk|rk)-{_MIXED}{_LETTERS}{{20,}}")),
    ("sk_ key", re.compile(rf"{_BEGIN}(?:sk|rk|pk)_(?:live|test)_[A-Za-z0-9]{{16,}}")),
    ("sr_ key", re.compile(rf"{_BEGIN}sr_{_MIXED}{_LETTERS}{{20,}}")),  # this project's own
    ("GitHub token", re.compile(rf"{_BEGIN}(?:gh[pousr]_[A-Za-z0-9]{{30,}}|github_pat_[A-Za-z0-9_]{{40,}})")),
    ("GitLab token", re.compile(rf"{_BEGIN}glpat-{_MIXED}{_LETTERS}{{20,}}")),
    ("AWS key id", re.compile(rf"{_BEGIN}(?:AKIA|ASIA)[A-Z0-9]{{16}}{_END}")),
    ("Google key", re.compile(rf"{_BEGIN}AIza{_LETTERS}{{35}}")),
    ("Slack token", re.compile(rf"{_BEGIN}xox[abeoprs]-(?=[A-Za-z-]*[0-9])[A-Za-z0-9-]{{10,}}")),
    ("Hugging Face token", re.compile(rf"{_BEGIN}hf_[A-Za-z0-9]{{30,}}")),
    ("npm token", re.compile(rf"{_BEGIN}npm_[A-Za-z0-9]{{36,}}")),
    ("PyPI token", re.compile(rf"{_BEGIN}pypi-AgEI{_LETTERS}{{20,}}")),
    ("Telegram token", re.compile(rf"(?<![0-9])[0-9]{{8,10}}:AA{_LETTERS}{{33}}{_END}")),
)
_BEARER = re.compile(r"\b(Bearer\s+)(?=[A-Za-z._~+/-]*[0-9])(?=[0-9._~+/-]*[A-Za-z])[A-Za-z0-9._~+/-]{16,}=*", re.I)
_URL_PASSWORD = re.compile(r"\b([a-z][a-z0-9+.-]{1,20}://[^\s/@:]{0,100}):([^\s/@]{1,200})@")


def redacted(text: str) -> str:
    """`text` with a marker in the place of each secret; the same object when there is none."""
    for kind, shape in _SHAPES:
        text = shape.sub(MARK.format(kind), text)
    text = _BEARER.sub(rf"\1{MARK.format('token')}", text)
    return _URL_PASSWORD.sub(rf"\1:{MARK.format('password')}@", text)
