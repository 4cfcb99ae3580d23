"""What looks like a key leaves no trace; what people and programs say stays as it is."""

from __future__ import annotations

import random
import string
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from producers.hermes.redaction import redacted

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
CHARACTERS = string.ascii_letters + string.digits


def key(length: int, characters: str = CHARACTERS) -> str:
    """Made here, so that no scanner of repositories mistakes this file."""
    return "a1" + "".join(random.Random(length).choices(characters, k=length - 2))


UPPER = string.ascii_uppercase + string.digits
SECRETS = [
    "sk-" + key(48),
    "sk-proj-" + key(60, CHARACTERS + "-_"),
    "sk-ant-api03-" + key(80, CHARACTERS + "-_"),
    "sk-or-v1-" + key(64, "0123456789abcdef"),
    "sk_live_" + key(24),
    "sr_" + key(32),
    "ghp_" + key(36),
    "gho_" + key(36),
    "github_pat_" + key(82, CHARACTERS + "_"),
    "glpat-" + key(20),
    "AKIA" + key(16, UPPER).upper(),
    "ASIA" + key(16, UPPER).upper(),
    "AIza" + key(35),
    "xoxb-" + "123456789012-" + key(24),
    "hf_" + key(34),
    "npm_" + key(36),
    "1234567890:AA" + key(33),
    "eyJ" + key(20) + ".eyJ" + key(40) + "." + key(43),
]


@pytest.mark.parametrize("secret", SECRETS, ids=lambda secret: secret[:8])
@pytest.mark.parametrize(
    "around", ["{}", "the key is {}.", "export KEY='{}'; run", '{{"key": "{}"}}', "密钥是{}。", "a={}&b"]
)
def test_a_key_is_replaced_and_the_rest_stays(secret: str, around: str) -> None:
    before, after = around.format("|").split("|")
    found = redacted(around.format(secret))
    assert secret[8:] not in found
    assert found.startswith(before + "[redacted ")
    assert found.endswith("]" + after)


def test_a_private_key_goes_whole_also_one_that_is_cut_off() -> None:
    lines = "\n".join(key(64) for _ in range(4))
    for kind in ("RSA PRIVATE KEY", "PRIVATE KEY", "OPENSSH PRIVATE KEY", "PGP PRIVATE KEY BLOCK"):
        whole = f"see\n-----BEGIN {kind}-----\n{lines}\n-----END {kind}-----\nbelow"
        assert redacted(whole) == "see\n[redacted private key]\nbelow"
        assert redacted(f"see\n-----BEGIN {kind}-----\n{lines}") == "see\n[redacted private key]"
    public = f"-----BEGIN PUBLIC KEY-----\n{lines}\n-----END PUBLIC KEY-----"
    assert redacted(public) == public


def test_bearer_tokens_and_passwords_in_urls_are_replaced() -> None:
    assert redacted(f"Authorization: Bearer {key(40)}") == "Authorization: Bearer [redacted token]"
    assert redacted("redis://app:hunter2@db:6379/0") == "redis://app:[redacted password]@db:6379/0"


@pytest.mark.parametrize(
    "text",
    [
        "the bearer of bad news arrived; bearer authentication is used",
        "Bearer authentication-scheme-is-described-below",
        "pip install sk-learn-contrib-and-some-more-things",
        "sk-learn, task-runner-configuration, risk-assessment-2024-summary-report",
        "desk-1234567890123456789012345",
        "AKIA is how a key id begins; AKIABC",
        "xoxo-love-and-kisses-forever",
        "ghp_short and hf_model_name_is_long_but_has_underscores_in_it",
        "commit 3b18e512dba79e4c8300dd08aeb37f8e728b8dad",
        "uuid 550e8400-e29b-41d4-a716-446655440000",
        "https://example.org:8443/path?x=1 and http://user@example.org/",
        "at 12:34:56 in a:b@c; mail me@example.org",
        "eyJ is how a token begins",
        "sr_latn_rs_locale_name_of_serbian_latin",
        "部署失败是因为证书过期了，已经换成新的证书。",
    ],
)
def test_ordinary_words_stay(text: str) -> None:
    assert redacted(text) == text


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_our_own_pages_hold_no_secret(path: Path) -> None:
    text = path.read_text()
    assert redacted(text) == text


@given(st.lists(st.from_regex(r"[A-Za-z]{1,14}(-[a-z]{1,9}){0,4}", fullmatch=True), max_size=30))
def test_words_of_letters_and_hyphens_are_never_keys(words: list[str]) -> None:
    text = " ".join(words)
    assert redacted(text) == text


@given(st.text())
def test_redacting_twice_changes_nothing_more(text: str) -> None:
    assert redacted(redacted(text)) == redacted(text)
