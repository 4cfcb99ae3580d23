"""Secrets out of a text, by the shapes of well-known keys and by the names that texts give them. Pure.

A false alarm would change what somebody said: what has a key's prefix and reads as words and numbers stays. The marker
names the kind, so that a reader sees what was there.
"""

from __future__ import annotations

import re
from functools import partial

MARK = "[redacted {}]"

_BEGIN, _END = r"(?<![A-Za-z0-9_-])", r"(?![A-Za-z0-9_-])"
_ANY = r"[A-Za-z0-9_-]"
_PEM = r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
_GAP = r"(?:\\[nr]|[\s>|\"',\\])++"
"""Between two lines of a key, also of one that is quoted, indented or inside a string."""

_EXACT: tuple[tuple[str, str], ...] = (
    ("private key", rf"{_PEM}(?=(?:(?!-----).)*?[A-Za-z0-9+/]{{32}})(?:(?!-----).)*+-----END [A-Z0-9 ]{{0,40}}-----"),
    (
        "private key",  # one that is cut off: its lines, as far as they go
        rf"{_PEM}(?:{_GAP}[A-Z][A-Za-z-]{{1,20}}: [^\n\\]{{0,200}})*"
        rf"(?:{_GAP}[A-Za-z0-9+/=]{{16,}}+)+(?:{_GAP}[A-Za-z0-9+/=]+\Z)?",
    ),
    ("token", rf"{_BEGIN}eyJ{_ANY}{{8,}}\.eyJ{_ANY}{{8,}}\.{_ANY}{{8,}}"),  # JWT
    ("sk_ key", rf"{_BEGIN}(?:sk|rk|pk)_(?:live|test)_[A-Za-z0-9]{{16,}}"),
    ("webhook secret", rf"{_BEGIN}whsec_[A-Za-z0-9+/]{{20,}}=*"),
    ("GitHub token", rf"{_BEGIN}(?:gh[pousr]_[A-Za-z0-9]{{30,}}|github_pat_[A-Za-z0-9_]{{40,}})"),
    (
        "GitLab token",
        rf"{_BEGIN}gl(?:pat|ptt|dt|rt|rtr|cbt|ft|soat|agent|imt|oas|ffct|wt)-{_ANY}{{20,}}(?:\.[A-Za-z0-9]{{2,}}){{0,2}}",
    ),
    ("AWS key id", rf"{_BEGIN}(?:AKIA|ASIA)[A-Z0-9]{{16}}{_END}"),
    ("Google key", rf"{_BEGIN}(?:AIza{_ANY}{{35,}}|ya29\.{_ANY}{{20,}}|GOCSPX-{_ANY}{{20,}})"),
    ("Slack webhook", r"hooks\.slack\.com/(?:services|workflows|triggers)/[A-Za-z0-9/_-]{20,}"),
    ("Discord webhook", rf"discord(?:app)?\.com/api/(?:v[0-9]+/)?webhooks/[0-9]+/{_ANY}{{20,}}"),
    ("Discord token", rf"{_BEGIN}[MNO](?={_ANY}*[0-9]){_ANY}{{22,28}}\.{_ANY}{{6}}\.{_ANY}{{27,40}}{_END}"),
    ("Hugging Face token", rf"{_BEGIN}hf_[A-Za-z0-9]{{30,}}"),
    ("Groq key", rf"{_BEGIN}gsk_[A-Za-z0-9]{{30,}}"),
    ("xAI key", rf"{_BEGIN}xai-[A-Za-z0-9]{{30,}}"),
    ("npm token", rf"{_BEGIN}npm_[A-Za-z0-9]{{36,}}"),
    ("PyPI token", rf"{_BEGIN}pypi-AgEI{_ANY}{{20,}}"),
    ("Telegram token", rf"(?<![0-9])[0-9]{{8,10}}:AA{_ANY}{{33}}{_END}"),
    ("SendGrid key", rf"{_BEGIN}SG\.{_ANY}{{16,32}}\.{_ANY}{{32,}}"),
    ("DigitalOcean token", rf"{_BEGIN}do[opr]_v1_[a-f0-9]{{64,}}"),
    ("Notion token", rf"{_BEGIN}(?:ntn_|secret_)[A-Za-z0-9]{{40,}}"),
    ("Databricks token", rf"{_BEGIN}dapi[a-f0-9]{{32}}(?:-[0-9])?"),
    ("age key", rf"{_BEGIN}AGE-SECRET-KEY-[A-Z0-9-]{{58,}}"),
)
"""(kind, shape) that no word and no ordinary identifier has."""
_LOOSE: tuple[tuple[str, str], ...] = (
    ("sk- key", rf"{_BEGIN}(?:sk|rk)-({_ANY}{{20,}})"),
    ("sr_ key", rf"{_BEGIN}sr_({_ANY}{{20,}})"),  # this project's own
    ("Slack token", rf"{_BEGIN}(?:xox[abeoprs]|xapp)-([A-Za-z0-9-]{{10,}})"),
    ("Vault token", rf"{_BEGIN}hv[sbr]\.({_ANY}{{24,}})"),
)
"""(kind, shape) that names have too, such as `sk-hynix-prices-2024`: a key when what the group holds is made up."""
_COMPILED = [(MARK.format(kind), re.compile(shape, re.S)) for kind, shape in (*_EXACT, *_LOOSE)]

_URL_PASSWORD = re.compile(
    r"(?<![a-z0-9+.-])([a-z][a-z0-9+.-]{1,20}://[^\s/@:\[]{0,100}):"
    r"(?!(?:[0-9]{1,5}|[${<]{0,2}port[}>]{0,2})[/?#,;)])"
    # To the last @ that a host may follow: people write passwords that hold @ and /, though no parser takes them.
    r"(?:(?:(?!://)[!$-&(-;=@-_a-~]){1,200}(?<!/)|[!-.0-?A-~]{1,200})@(?=[\w\[{$<])",
    re.I,
)
_HEADER = re.compile(
    r"(authorization[\"']?\s{0,3}[:=]\s{0,3}[\"']?(?:basic|bearer|token)\s{1,3})([\w.~+/-]{8,}=*)", re.I | re.A
)
_BEARER = re.compile(r"(?<![a-z0-9])(bearer\s{1,3})([\w.~+/-]{16,}=*)", re.I | re.A)
_ASSIGNED = re.compile(
    r"((?P<password>password|passwd|passphrase|pwd|密码|口令)|token|secret|(?:api|access|secret|private|auth)[ _-]?key)"
    r"(?P<sign>\\?[\"'`*]{0,2}\s{0,3}(?:=>|:=|[:=：＝])\*{0,2}\s{0,3}\\?[\"'`]?)"
    r"(?P<value>(?<=[\"'`])[!#-&(-\[\]-_a-~]{6,}(?=\\?[\"'`])|(?<![\"'`])[\w!#-%*+./:=?@^|~-]{6,}+(?![(\[{<]))",
    re.I | re.A,
)
_PIECE = (
    r"(?>(?:(?:[A-Z]?[a-z]{2,19}(?![a-z])[0-9]{0,4})+|[A-Z]{1,19}[0-9]{0,4}"
    r"|[A-Za-z][0-9]{0,4}[a-z]{0,9}[0-9]{0,4}|[0-9]+[A-Za-z]{0,9})(?![A-Za-z0-9]))"
)
"""One or more words, an abbreviation, a number, a version or a quantity: `gpt4`, `getToken`, `v1beta2`, `10GB`. As an
atom that ends where letters do, so that no text takes long."""
_NAME = re.compile(rf"[^A-Za-z0-9]*{_PIECE}(?:[_.~+/:@#-]+{_PIECE})*[_.~+/:@#-]*")
_PASSES = 3
"""Secrets that hang together come to light one after the other."""
_SHORTEST = 16
"""Characters of a value that is given as a token; a password may be shorter."""


def redacted(text: str) -> str:
    """`text` with a marker in the place of each secret; the same object when there is none."""
    for _ in range(_PASSES):
        clean = _once(text)
        if clean == text:
            break
        text = clean
    return text


def _once(text: str) -> str:
    for mark, shape in _COMPILED:
        text = shape.sub(partial(_marked, mark), text)
    text = _URL_PASSWORD.sub(rf"\1:{MARK.format('password')}@", text)
    token = MARK.format("token")
    text = _HEADER.sub(lambda found: found[1] + token if _made_up(found[2]) else found[0], text)
    text = _BEARER.sub(lambda found: found[1] + token if _made_up(found[2]) else found[0], text)
    return _ASSIGNED.sub(_without_value, text)


def _marked(mark: str, found: re.Match[str]) -> str:
    return found[0] if found.re.groups and not _made_up(found[1]) else mark


def _made_up(text: str) -> bool:
    """Whether no person has named something so."""
    return _NAME.fullmatch(text) is None


def _without_value(found: re.Match[str]) -> str:
    value = found["value"].rstrip(".:?")
    if "://" in value or value[:1] in ("$", "%", "{", "<"):  # where it is, or what it is called
        return found[0]
    if found["password"]:
        kind = "password"
        secret = value[:1] not in ("/", ".", "~") and (_made_up(value) or re.search(r"[0-9!#$%&*+=?@^|~]", value))
    else:
        kind = "secret"
        secret = len(value) >= _SHORTEST and _made_up(value)
    return f"{found[1]}{found['sign']}{MARK.format(kind)}{found['value'][len(value) :]}" if secret else found[0]
