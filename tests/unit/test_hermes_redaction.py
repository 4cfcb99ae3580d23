"""What looks like a key leaves no trace; what people and programs say stays as it is."""

from __future__ import annotations

import random
import string
import time
from base64 import b64encode
from pathlib import Path
from uuid import UUID

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


NAMED = ["{}", "commit {}", "id={}", '"session": "{}"', "key: {}", "![a picture]({})", "sha256:{}"]
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
    "glptt-" + key(40, "0123456789abcdef"),
    "gldt-" + key(20),
    "glrt-" + key(27) + ".01." + key(9),
    "AKIA" + key(16, UPPER).upper(),
    "ASIA" + key(16, UPPER).upper(),
    "AIza" + key(35),
    "ya29." + key(60, CHARACTERS + "-_"),
    "GOCSPX-" + key(28),
    "xoxb-" + "123456789012-" + key(24),
    "xapp-1-" + "A012-123456789012-" + key(64, "0123456789abcdef"),
    "hooks.slack.com/services/" + "T000/B000/" + key(24),
    "discord.com/api/webhooks/" + "123456789012345678/" + key(68),
    "M" + key(25) + "." + key(6) + "." + key(38),
    "hf_" + key(34),
    "npm_" + key(36),
    "1234567890:AA" + key(33),
    "SG." + key(22) + "." + key(43),
    "gsk_" + key(52),
    "xai-" + key(80),
    "dop_v1_" + key(64, "0123456789abcdef"),
    "ntn_" + key(46),
    "secret_" + key(43),
    "dapi" + key(32, "0123456789abcdef"),
    "hvs." + key(90, CHARACTERS + "-_"),
    "AGE-SECRET-KEY-" + key(58, UPPER).upper(),
    "whsec_" + key(32),
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


def test_a_private_key_goes_out_of_a_string_and_a_quotation_too() -> None:
    lines = [key(64), key(63)]
    inside = "\\n".join(["-----BEGIN PRIVATE KEY-----", *lines, "ab=", "-----END PRIVATE KEY-----", '"}'])
    assert redacted('{"key": "' + inside) == '{"key": "[redacted private key]\\n"}'
    head = "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\n"
    quoted = (head + "\n".join(lines)).replace("\n", "\n> ")
    assert redacted(f"> {quoted}\n\nIs it good?") == "> [redacted private key]\n\nIs it good?"


@pytest.mark.parametrize(
    "text",
    [
        "A key begins with -----BEGIN RSA PRIVATE KEY-----, then come its lines. This stays.",
        "-----BEGIN PRIVATE KEY-----\nMIIE...\n\nis how it looks",
        "between -----BEGIN PRIVATE KEY----- and -----END PRIVATE KEY----- there are lines",
    ],
)
def test_a_mention_of_a_private_key_takes_nothing_with_it(text: str) -> None:
    assert redacted(text) == text


@pytest.mark.parametrize(
    ("before", "secret", "after"),
    [
        ("Authorization: Bearer ", key(40), ""),
        ("authorization: bearer ", key(24, string.ascii_letters), "'"),
        ("Bearer ", "x" * 32, " is used"),
        ('"Authorization": "Basic ', "dXNlcjpwYXNz", '"'),
        ("aws_secret_access_key = ", key(38) + "/+", "\nregion = x"),
        ("export API_KEY='", key(32), "'"),
        ('{"api_key": "', key(32), '", "k": 1}'),
        ('{\\"client_secret\\": \\"', key(32), '\\"}'),
        ("x-api-key: ", "550e8400-e29b-41d4-a716-446655440000", ""),
        ("https://example.org/?token=", key(24), "&page=2"),
        ("password=", "hunter2", ""),
        ("(DB_PASSWORD: ", "correct!horse", ")."),
        ("**Password:** ", "Summer2024", "."),
        ("`password`: `", "a,b;c&d1", "`"),
        ("密码：", "abc123", "，谢谢"),
    ],
)
def test_what_a_text_calls_a_secret_is_replaced(before: str, secret: str, after: str) -> None:
    found = redacted(before + secret + after)
    assert found.startswith(before + "[redacted ")
    assert found.endswith("]" + after)


@pytest.mark.parametrize(
    ("url", "clean"),
    [
        ("redis://app:hunter2@db:6379/0", "redis://app:*@db:6379/0"),
        ("POSTGRES://App:hunter2@db/x", "POSTGRES://App:*@db/x"),
        ("redis://:hunter2@db", "redis://:*@db"),
        ("postgres://app:p@ss/w0rd@db:5432/x", "postgres://app:*@db:5432/x"),
        ("postgres://app:what?#now@db/x", "postgres://app:*@db/x"),
        ("https://app:hunter2@registry/@scope/name", "https://app:*@registry/@scope/name"),
        ("见postgres://a:b1@h/d,postgres://c:d2@i/d。", "见postgres://a:*@h/d,postgres://c:*@i/d。"),
    ],
)
def test_a_password_in_a_url_is_replaced(url: str, clean: str) -> None:
    assert redacted(url) == clean.replace("*", "[redacted password]")


@pytest.mark.parametrize(
    "text",
    [
        "the bearer of bad news arrived; bearer authentication is used",
        "Bearer authentication-scheme-is-described-below",
        "bearer certificate-of-deposit-2024; Authorization: Basic authentication",
        "sk-hynix-memory-prices-2024-report and rk-3588-single-board-computer-review",
        ".sk-circle-animation-delay-12 { } sk-model-v2beta1-7b-instruct-q4-k-m",
        "sr_checkpoint_epoch_000100_final_model",
        "password: required, max_tokens=4096, token_count: 123456, tokens: bert-base-uncased-2018",
        "password = os.environ['DB_PASSWORD1'] or get_password_v2() or $DB_PASSWORD1",
        "accessToken: userAccessTokenFromSession, api_key=YOUR_API_KEY_HERE, PWD=/home/user1",
        "secret: https://vault.example.org/v1/aB3dE5fG7hI9kL1m; 密码: 证书2026年过期了",
        "pip install sk-learn-contrib-and-some-more-things",
        "sk-learn, task-runner-configuration, risk-assessment-2024-summary-report",
        "desk-1234567890123456789012345",
        "AKIA is how a key id begins; AKIABC",
        "xoxo-love-and-kisses-forever",
        "ghp_short and hf_model_name_is_long_but_has_underscores_in_it",
        "commit 3b18e512dba79e4c8300dd08aeb37f8e728b8dad",
        "uuid 550e8400-e29b-41d4-a716-446655440000",
        "https://example.org:8443/path?x=1 and http://user@example.org/",
        "https://example.org:8443/users/@vera http://localhost:80/x?mail=a@b.c http://HOST:PORT/@me http://[::1]:80/@x",
        "看http://h:80端口，发邮件a@b.c",
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


@given(st.binary(min_size=20, max_size=20), st.uuids(), st.binary(max_size=2_000), st.sampled_from(NAMED))
def test_hashes_uuids_and_images_stay(commit: bytes, identifier: UUID, image: bytes, named: str) -> None:
    for value in (commit.hex(), str(identifier), f"data:image/png;base64,{b64encode(image).decode()}"):
        text = named.format(value)
        assert redacted(text) == text


PARTS = st.sampled_from([*SECRETS, *NAMED, "password=", "://a:", "@", "Bearer ", '"', "\n", " ", "hunter2"])


@given(st.text(max_size=40) | st.lists(PARTS | st.text(max_size=5), max_size=3).map("".join))
def test_redacting_twice_changes_nothing_more(text: str) -> None:
    assert redacted(redacted(text)) == redacted(text)


@pytest.mark.parametrize(
    "part", ["sk-", "a1-", "AKIA" + "A1" * 8, "://a:", "token: '", "-----BEGIN PRIVATE KEY-----\n", "eyJ", "M", "a.b"]
)
def test_a_long_text_takes_no_long_time(part: str) -> None:
    started = time.process_time()
    redacted("sk-" + part * (200_000 // len(part)) + "!")
    assert time.process_time() - started < 2
