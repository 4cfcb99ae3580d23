"""How many tokens a text has where nobody knows the target model's tokenizer: an estimate without a model. Pure.

A Chinese, Japanese or Korean character is one token, a Latin word one for six letters, digits one for three, a mark or
a line break one. Tokens that two of OpenAI's vocabularies made of 25 labelled turns a set, as a share of the estimate:

                         o200k (all turns, worst 5 in 100)   cl100k
    English dialogues    .77 to .81, .91                     .82 to .83, .94
    coding agents        .75 to .78, .93                     .69 to .93, .93
    Chinese              .71 to .84, 1.00                    1.18 to 1.23, 1.40

So a bound holds for vocabularies of today; where Chinese characters are split, as by cl100k, ask for a fifth less.
"""

from __future__ import annotations

import regex

LETTERS_PER_TOKEN = 6
DIGITS_PER_TOKEN = 3
_PIECE = regex.compile(
    r"(?P<word>\p{Latin}[\p{Latin}\p{Mn}]*)|(?P<digits>[0-9]+)|(?P<newline>\n)|(?P<space>[^\S\n]+)"
    r"|(?P<east>[\p{Han}\p{Hiragana}\p{Katakana}\p{Hangul}\u3000-\u303f\uff00-\uffef])|(?P<letters>[\p{L}\p{M}]+)"
    r"|(?P<mark>[!-/:-@\[-`{-~])|(?P<other>.)",
    regex.DOTALL,
)


def estimate_tokens(text: str) -> int:
    """Tokens of `text`; those of two texts joined by a line break are the sum of both and one."""
    return sum(_tokens(found) for found in _PIECE.finditer(text))


def prefix_within(text: str, tokens: int) -> int:
    """Characters of the longest beginning of `text`, cut between pieces, that has at most `tokens` tokens."""
    for found in _PIECE.finditer(text):
        tokens -= _tokens(found)
        if tokens < 0:
            return int(found.start())
    return len(text)


def _tokens(found: regex.Match[str]) -> int:
    length: int = found.end() - found.start()
    match found.lastgroup:
        case "word":
            return -(-length // LETTERS_PER_TOKEN)
        case "digits":
            return -(-length // DIGITS_PER_TOKEN)
        case "space":
            return 0 if length == 1 else 1
        case "letters":
            return -(-length // 2)
        case "other":
            return max(1, len(str(found.group()).encode()) - 1)
        case _:
            return 1
