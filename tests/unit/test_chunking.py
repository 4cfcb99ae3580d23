"""Chunking: nothing is lost, nothing is too long, and what belongs together stays together."""

from __future__ import annotations

import re
import time
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from producers.errors import SettingsError
from workers.chunking import CHARS_PER_TOKEN_LIMIT, Chunk, Chunker
from workers.embedding.hashing import HashingEmbedder
from workers.embedding.text import readable

TOKEN = re.compile(r"\w|[^\w\s]")


def count_characters(text: str) -> int:
    """A tokenizer at its worst: every letter, ideograph and mark is a token, white space none, as in WordPiece."""
    return len(TOKEN.findall(text))


def count_bytes(text: str) -> int:
    """A tokenizer that falls back to bytes and counts white space too."""
    return len(text.encode())


COUNTERS = [count_characters, count_bytes]
MARKS = [
    "```python\n",
    "```\n",
    "~~~\n",
    "~~~~ sh\n",
    "````\n",
    "\n",
    "\n\n",
    "\r\n\r\n",
    "    ",
    "\t",
    "`x` ",
    "x=1\n",
]
WORDS_AND_MORE = [
    "word ",
    "数据。",
    "える！",
    "；",
    "…",
    "a.b.c ",
    "Ünï ",
    "👩‍👩‍👧",
    "\ufdfa",
    "\x00",
    "\ud800",
    "\u2028",
    "\x1c",
    "z" * 300,
]
FRAGMENTS = st.sampled_from(MARKS + WORDS_AND_MORE)
MARKDOWN = st.lists(FRAGMENTS | st.text(max_size=8), max_size=40).map("".join)


def check(content: str, chunks: list[Chunk], limit: int) -> None:
    covered = bytearray(len(content))
    for at, chunk in enumerate(chunks):
        assert (chunk.index, chunk.total) == (at, len(chunks))
        assert readable(chunk.text).strip() == readable(content[chunk.start : chunk.end]).strip()
        assert chunk.text.strip() == chunk.text != ""
        assert len(chunk.text) <= limit * CHARS_PER_TOKEN_LIMIT
        covered[chunk.start : chunk.end] = b"\1" * (chunk.end - chunk.start)
    starts, ends = [chunk.start for chunk in chunks], [chunk.end for chunk in chunks]
    assert starts == sorted(set(starts))
    assert ends == sorted(set(ends))
    assert all(covered) or not chunks, "every character of a turn that is not blank is in some span"


@pytest.mark.parametrize("count", COUNTERS)
@given(content=MARKDOWN, limit=st.integers(40, 90), overlap=st.integers(0, 30))
def test_chunks_cover_any_text_in_order_and_within_the_limit(count, content, limit, overlap):
    chunks = Chunker(count, limit, overlap).chunk(content)
    check(content, chunks, limit)
    assert all(count(readable(chunk.text)) <= limit for chunk in chunks)


@given(content=st.text(), limit=st.integers(40, 200))
def test_a_text_that_fits_is_one_chunk_whatever_it_holds(content, limit):
    chunks = Chunker(count_bytes, limit).chunk(content)
    stripped = content.replace("\x00", " ").strip()
    if 0 < len(stripped.encode()) <= limit:
        assert [content[chunk.start : chunk.end].replace("\x00", " ").strip() for chunk in chunks] == [stripped]
    else:
        assert len(chunks) != 1


@pytest.mark.parametrize("blank", ["", " \n\t", "\x00", "\u2003"])
def test_a_blank_text_has_no_chunks(blank):
    assert Chunker(count_bytes, 50).chunk(blank) == []


@pytest.mark.parametrize(
    ("text", "ends"),
    [
        ("今天天气很好，我们去公园。你想一起来吗？当然想！那就走吧……路上小心；别忘了带伞。" * 5, "。？！…；"),
        ("左边的门通向花园；右边的门通向图书馆；" * 8, "；"),
        ("他想了很久……她也没有说话……" * 12, "…"),
        ("明日は早く起きます。何時ですか？七時です！わかりました。" * 6, "。？！"),
        ("The build is red. Who broke it? Nobody knows! We look again. " * 5, ".?!"),
    ],
)
def test_pieces_of_a_long_paragraph_end_where_sentences_end(text, ends):
    chunks = Chunker(count_characters, 60).chunk(text)
    check(text, chunks, 60)
    assert len(chunks) > 2
    assert all(chunk.text[-1] in ends for chunk in chunks)


def test_pieces_of_one_paragraph_overlap_and_paragraphs_do_not():
    long = "Alpha beta gamma. Delta epsilon zeta. Eta theta iota. Kappa lambda mu. Nu xi omicron."
    content = f"{long}\n\nSecond paragraph stands alone here, and it is long enough."
    chunks = Chunker(count_characters, 45, overlap=20).chunk(content)
    check(content, chunks, 45)
    inside = [chunk for chunk in chunks if chunk.start < len(long)]
    assert len(inside) > 1
    assert any(second.start < first.end for first, second in pairwise(inside))
    after = [chunk for chunk in chunks if chunk.start >= len(long)]
    assert inside + after == chunks
    assert after[0].text.startswith("Second")


def test_small_neighbouring_paragraphs_share_a_chunk_up_to_the_limit():
    content = "\n\n".join(f"paragraph {number:02d}" for number in range(20))
    chunks = Chunker(count_characters, 48).chunk(content)
    assert [chunk.text.count("paragraph") for chunk in chunks] == [4] * 5


def test_a_fence_that_fits_is_never_cut_and_carries_its_language():
    code = "```Python title=app.py\ndef f(x):\n\n    return x\n```"
    prose = "Some words about the change that was made here."
    content = f"{prose}\n\n{code}\n\n{prose}"
    for limit in (45, 500):
        chunks = Chunker(count_characters, limit).chunk(content)
        found = [(chunk.kind, chunk.language, chunk.text) for chunk in chunks]
        assert found == [("prose", None, prose), ("code", "python", code), ("prose", None, prose)]


@pytest.mark.parametrize("mark", ["```", "~~~", "````", "   ```"])
def test_a_long_fence_is_cut_at_line_ends_and_every_piece_is_tagged(mark):
    lines = [f"value_{number:02d} = compute({number})" for number in range(30)]
    content = f"{mark}py\n" + "\n".join(lines) + f"\n{mark}"
    chunks = Chunker(count_characters, 100, overlap=10).chunk(content)
    check(content, chunks, 100)
    assert len(chunks) > 3
    assert {(chunk.kind, chunk.language) for chunk in chunks} == {("code", "py")}
    inner = [
        line for chunk in chunks for line in chunk.text.split("\n") if not line.lstrip().startswith(mark.strip()[0])
    ]
    assert inner == lines
    assert chunks[-1].text.endswith(f"\n{mark}")


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("```\ncode\n```", ("code", None)),
        ("```{.Rust}\ncode\n```", ("code", "rust")),
        ("~~~ sh -x\ncode\n~~~", ("code", "sh")),
        ("```js\nnever closed", ("code", "js")),
        ("````md\n```py\nx\n```\n````", ("code", "md")),
        ("  ```go\n  x\n  ```", ("code", "go")),
        ("inline ```not a fence``` here", ("prose", None)),
        ("```not a fence``` either", ("prose", None)),
        ("```" + "x" * 40 + "\ncode\n```", ("code", None)),
    ],
)
def test_fences_are_told_from_prose(content, expected):
    (chunk,) = Chunker(count_bytes, 400).chunk(content)
    assert (chunk.kind, chunk.language) == expected


def test_a_word_longer_than_the_limit_is_cut_rather_than_lost():
    content = "start " + "x" * 1000 + " end"
    chunks = Chunker(count_characters, 64).chunk(content)
    check(content, chunks, 64)
    assert max(count_characters(chunk.text) for chunk in chunks) <= 64


MEBIBYTE = 1 << 20


@pytest.mark.parametrize(
    "content",
    [
        "a" * MEBIBYTE,
        "中文没有标点" * (MEBIBYTE // 18),
        "x" + "\n" * MEBIBYTE + "y",
        "x" + " \n" * (MEBIBYTE // 2) + "y",
        "`" * 100_000,
        "```\n" * 100_000,
        "\n".join("`" * marks + "x" for marks in range(3, 1000)),
        "```" + "z" * MEBIBYTE + "\ncode\n```",
        "a\n\n" * 300_000,
    ],
    ids=[
        "letters",
        "ideographs",
        "newlines",
        "blank lines",
        "backticks",
        "fences",
        "deep fences",
        "info",
        "paragraphs",
    ],
)
def test_a_pathological_mebibyte_is_cut_in_bounded_time(content):
    embedder = HashingEmbedder()
    chunker = Chunker(embedder.token_counter(), embedder.max_tokens, 32)
    begun = time.process_time()
    chunks = chunker.chunk(content)
    assert (
        time.process_time() - begun < 20
    )  # seconds of CPU; 5 at most when written, against hours where time is squared
    check(content, chunks, embedder.max_tokens)


def test_a_short_turn_is_cut_without_the_tokenizer():
    def unwanted(text: str) -> int:
        raise AssertionError(f"counted {text!r}")

    assert len(Chunker(unwanted, 254).chunk("A short turn, 短い。\n\nTwo paragraphs.")) == 1


@pytest.mark.parametrize("expanding", ["\ufdfa" * 20, "㌀" * 60, "각" * 60])
def test_a_text_that_grows_when_normalised_is_not_taken_for_short(expanding):
    counted: list[str] = []
    Chunker(lambda text: counted.append(text) or 1, 254).chunk(expanding)
    assert counted == [expanding]


def test_an_overlap_that_is_the_whole_chunk_is_refused_by_name():
    with pytest.raises(SettingsError, match="chunk_overlap 64 must be below chunk_tokens 64"):
        Chunker(count_bytes, 64, 64)
