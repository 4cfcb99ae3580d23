"""The pieces by which forgotten content would be known again."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from producers.settings import Settings, load_settings
from workers.maintenance import byte_search
from workers.maintenance import erasure_proof as proof
from workers.maintenance.erasure_proof import PIECE_CHARS, SHORTEST_PIECE, Piece, distinctive, look_for, pieces_of
from workers.stores.terms import search_text

ENGLISH = 'She said: "the kestrel flew\nover Quartzite-7781 at dawn", twice.'
CHINESE = "部署失败是因为证书过期了，已经换成新的证书。"


@given(st.lists(st.text(max_size=80), max_size=5))
def test_a_piece_is_said_by_the_content_that_it_was_taken_of(contents: list[str]) -> None:
    for piece in pieces_of(contents):
        assert SHORTEST_PIECE <= len(piece.text) <= PIECE_CHARS
        assert any(piece.said_by(content) for content in contents)


def test_a_piece_holds_the_longest_word_and_nothing_that_json_would_change() -> None:
    pieces = pieces_of([ENGLISH])
    assert any("Quartzite-7781" in piece.text for piece in pieces if not piece.as_terms)
    assert any("Quartzite" in piece.text and piece.text in search_text(ENGLISH) for piece in pieces if piece.as_terms)
    assert not any(set(piece.text) & set('"\\\n') for piece in pieces)


def test_what_others_say_as_well_proves_nothing() -> None:
    pieces = pieces_of([ENGLISH, CHINESE])
    assert distinctive(pieces, ["something else", "证书"]) == pieces
    assert distinctive(pieces, [ENGLISH, CHINESE]) == []
    left = distinctive(pieces, [f"quoted: {CHINESE}"])
    assert left == pieces_of([ENGLISH])


def test_content_that_is_too_short_to_be_known_again_gives_no_piece() -> None:
    assert pieces_of(["ok", "  ", "好", ""]) == []


def test_a_piece_is_found_in_whatever_form_a_file_holds_it(settings: Settings) -> None:
    folder = settings.data_dir / "logs"
    folder.mkdir(parents=True)
    forms = {
        "raw": CHINESE.encode(),
        "ascii json": CHINESE.encode("ascii", "backslashreplace"),
        "terms": search_text(CHINESE).encode(),
        "far behind": b"\0" * (byte_search.READ_BYTES - 10) + CHINESE.encode(),
        "nothing": "证书没有过期".encode(),
    }
    for name, data in forms.items():
        (folder / name).write_bytes(data)
    search = look_for(pieces_of([CHINESE]), settings, None)
    assert {Path(path).name for path in search.found} == forms.keys() - {"nothing"}
    assert (search.files, search.keys) == (len(forms), 0)


def test_stores_outside_the_data_dir_are_searched_too(settings: Settings, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    settings.data_dir.mkdir()
    (elsewhere / "catalog.db").write_bytes(CHINESE.encode())
    (elsewhere / "data.lance").write_bytes(CHINESE.encode())
    moved = load_settings(
        data_dir=settings.data_dir, catalog_url=f"sqlite:///{elsewhere / 'catalog.db'}", vectors_uri=str(elsewhere)
    )
    assert len(look_for(pieces_of([CHINESE]), moved, None).found) == 2


def test_the_pieces_are_kept_privately_grow_and_are_not_among_what_is_searched(settings: Settings) -> None:
    settings.data_dir.mkdir()
    proof.keep(settings, 7, [ENGLISH])
    proof.keep(settings, 7, [CHINESE])
    assert set(proof.load(settings, 7)) == set(pieces_of([ENGLISH, CHINESE]))
    (kept,) = (settings.data_dir / proof.FOLDER).iterdir()
    assert (kept.stat().st_mode & 0o777, kept.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert look_for(proof.load(settings, 7) or [], settings, None).found == ()
    assert proof.kept_numbers(settings) == {7}
    proof.discard(settings, [7, 8])
    assert proof.kept_numbers(settings) == set()
    assert proof.load(settings, 7) is None


def test_a_file_of_pieces_that_a_kill_cut_short_is_as_good_as_none(settings: Settings) -> None:
    settings.data_dir.mkdir()
    proof.keep(settings, 7, [ENGLISH])
    (kept,) = (settings.data_dir / proof.FOLDER).iterdir()
    kept.write_text(kept.read_text()[:-9])
    assert proof.load(settings, 7) is None


def test_a_piece_in_terms_is_told_by_its_words_in_order() -> None:
    piece = Piece("Quartzite 7781", as_terms=True)
    assert piece.said_by("over Quartzite-7781")
    assert not piece.said_by("7781 times Quartzite")
