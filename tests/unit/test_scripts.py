"""Scripts: which a text uses, which a model speaks, and when the two do not meet."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from producers.scripts import foreign_scripts, script_weights
from workers.embedding.languages import SAMPLES, spoken_scripts

LATIN = frozenset({"latin"})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ("123 !? 🙂", {}),
        ("three plain words", {"latin": 3}),
        ("我们明天见", {"han": 5}),
        ("use 缓存 please", {"latin": 2, "han": 2}),
        ("これは本", {"kana": 3, "han": 1}),
        ("안녕 мир שלום", {"hangul": 2, "cyrillic": 3, "hebrew": 4}),
    ],
)
def test_letters_are_counted_by_script_and_latin_by_word(text, expected):
    assert script_weights(text) == expected


@pytest.mark.parametrize(
    ("text", "spoken", "expected"),
    [
        ("plain english", LATIN, []),
        ("我们明天见", LATIN, ["han"]),
        ("我们明天见", None, []),
        ("我们明天见", frozenset({"han", "latin"}), []),
        ("これは本です", LATIN, ["kana", "han"]),
        ("one two three four five six seven 八", LATIN, []),
        ("one two 八九", LATIN, ["han"]),
        ("12345", LATIN, []),
    ],
)
def test_scripts_are_foreign_when_they_are_a_large_share_and_not_spoken(text, spoken, expected):
    assert foreign_scripts(text, spoken) == expected


@given(st.text())
def test_no_script_is_foreign_to_a_model_that_speaks_all(text):
    assert foreign_scripts(text, None) == []
    assert foreign_scripts(text, frozenset(script_weights(text))) == []


def test_every_script_has_a_sample_in_that_script():
    for script, sample in SAMPLES.items():
        assert foreign_scripts(sample, frozenset({script})) == []
        assert script in script_weights(sample)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("BAAI/bge-m3", None),
        ("intfloat/multilingual-e5-large", None),
        ("sentence-transformers/paraphrase-multilingual-MiniLM-L12-v2", None),
        ("BAAI/bge-small-zh-v1.5", {"han", "latin"}),
        ("shibing624/text2vec-base-chinese", {"han", "latin"}),
        ("acme/unknown", None),
    ],
)
def test_a_name_that_tells_its_languages_is_believed(name, expected):
    assert spoken_scripts(name, None) == expected


def words(text: str) -> list[str | None]:
    return list(text.split())


def latin_words_else_letters(text: str) -> list[str | None]:
    return [part for word in text.split() for part in ([word] if word.isascii() else word)]


def latin_words_else_unknown(text: str) -> list[str | None]:
    return [word if word.isascii() else None for word in text.split()]


def latin_words_else_bytes(text: str) -> list[str | None]:
    return [part for word in text.split() for part in ([word] if word.isascii() else map(str, word.encode()))]


@pytest.mark.parametrize(
    ("tokenise", "expected"),
    [
        (words, None),
        (latin_words_else_letters, {"latin", "han"}),
        (latin_words_else_unknown, {"latin"}),
        (latin_words_else_bytes, {"latin"}),
        (lambda text: [None] * len(text), None),
        (lambda text: [], None),
    ],
    ids=["every word", "spells letters", "unknown", "spells bytes", "knows nothing", "gives nothing"],
)
def test_a_vocabulary_speaks_the_scripts_whose_words_it_holds(tokenise, expected):
    assert spoken_scripts("acme/some-model", tokenise) == expected
