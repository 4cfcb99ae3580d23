"""The embedding space: what makes two vectors comparable, from embedder and settings."""

from __future__ import annotations

import pytest

from producers.errors import SettingsError
from producers.settings import Settings
from workers.embedding.hashing import HashingEmbedder
from workers.runtime import DEFAULT_CHUNK_TOKENS, space_of
from workers.stores.space import Space, vector_id


def test_the_space_follows_the_embedder_and_the_settings() -> None:
    assert space_of(HashingEmbedder(), Settings()) == Space("hashing-v1", 64, 256, 32)
    assert space_of(HashingEmbedder(), Settings(chunk_tokens=100, chunk_overlap=5)) == Space("hashing-v1", 64, 100, 5)


def test_an_overlap_nobody_asked_for_shrinks_with_the_chunk() -> None:
    assert space_of(HashingEmbedder(), Settings(chunk_tokens=40)).chunk_overlap == 10


def test_a_model_that_reads_a_book_still_gets_chunks_of_a_page() -> None:
    reader = HashingEmbedder()
    reader.max_tokens = 8192
    assert space_of(reader, Settings()).chunk_tokens == DEFAULT_CHUNK_TOKENS
    assert space_of(reader, Settings(chunk_tokens=4000)).chunk_tokens == 4000


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (Settings(chunk_tokens=9999), "chunk_tokens 9999 is over what embedder hashing-v1 reads at once, 256"),
        (Settings(chunk_tokens=64, chunk_overlap=64), "chunk_overlap 64 must be below chunk_tokens 64"),
    ],
)
def test_sizes_that_cannot_work_are_refused_by_name(settings: Settings, said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        space_of(HashingEmbedder(), settings)


def test_any_difference_makes_another_space() -> None:
    base = Space("m", 64, 256, 32)
    others = [Space("n", 64, 256, 32), Space("m", 65, 256, 32), Space("m", 64, 255, 32), Space("m", 64, 256, 31)]
    assert len({base.id, *(other.id for other in others)}) == 5
    assert Space("BAAI/bge-m3", 1, 1, 1).id.startswith("baai_bge_m3_")


def test_a_vector_id_names_space_turn_content_and_chunk() -> None:
    ids = {
        vector_id("s", "t", "c", 0),
        vector_id("S", "t", "c", 0),
        vector_id("s", "T", "c", 0),
        vector_id("s", "t", "C", 0),
        vector_id("s", "t", "c", 1),
    }
    assert len(ids) == 5
    assert {len(one) for one in ids} == {32}
