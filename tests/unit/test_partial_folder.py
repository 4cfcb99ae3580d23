"""The folder a backup is written into: what may be taken away there, and what is somebody else's."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from producers.errors import NotReady, UsageError
from workers.backup.partial import partial_folder


def test_what_a_killed_backup_left_is_taken_away_and_no_mark_stays(tmp_path: Path) -> None:
    target, saved = tmp_path / "notes", tmp_path / "as it was"
    with partial_folder(target) as partial:
        (partial / "vectors").mkdir()
        (partial / "vectors" / "rows").write_text("half")
        (partial / "catalog.db").write_text("half")
        shutil.copytree(partial, saved)
    assert {path.name for path in target.iterdir()} == {"vectors", "catalog.db"}
    shutil.rmtree(target)
    saved.rename(partial)  # as after a kill
    with partial_folder(target) as again:
        assert again == partial
        (again / "manifest.json").write_text("whole")
    assert [path.name for path in target.iterdir()] == ["manifest.json"]
    assert not partial.exists()


def test_an_empty_folder_may_be_used_and_a_backup_that_fails_takes_it_away(tmp_path: Path) -> None:
    (tmp_path / "notes.partial").mkdir()
    with pytest.raises(NotReady, match="nothing of it is left"), partial_folder(tmp_path / "notes") as partial:
        (partial / "nothing" / "catalog.db").write_text("no such folder")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("what", ["folder", "link", "dangling link", "file"])
def test_what_no_backup_has_left_there_is_refused_and_stays(what: str, tmp_path: Path) -> None:
    partial, elsewhere = tmp_path / "notes.partial", tmp_path / "elsewhere"
    place = partial if what == "folder" else elsewhere
    if what != "dangling link":
        place.mkdir()
        (place / "thesis.txt").write_text("mine")
    if "link" in what:
        partial.symlink_to(elsewhere)
    elif what == "file":
        partial.write_text("mine")
    there = sorted(tmp_path.rglob("*"))
    move = "move it away, or choose another place"
    with pytest.raises(UsageError, match=move) as refused, partial_folder(tmp_path / "notes"):
        pass
    assert str(partial) in str(refused.value)
    assert "\n" not in str(refused.value)
    assert sorted(tmp_path.rglob("*")) == there
