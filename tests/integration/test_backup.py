"""Backup and restore at the edges: what is spooled, forgotten, in the way, damaged or away."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from producers.errors import BadBackup, Busy, NotReady, StoreUnavailable, UsageError
from producers.keys import Keys
from producers.settings import Settings
from producers.spool import Spool, spool_records, spooled
from producers.stream import EventStream
from stepped import Stepped, turn
from whole_system import ask, everything
from workers.backup.check import check_backup
from workers.backup.make import make_backup
from workers.backup.partial import partial_folder
from workers.backup.restore import restore_backup
from workers.maintenance.forget import forget
from workers.stores.catalog import Catalog
from workers.stores.selection import Selection
from workers.supervision.redis_server import embedded_redis

pytestmark = pytest.mark.integration


@pytest.fixture
def elsewhere(system: Stepped, tmp_path: Path) -> Settings:
    """The system's settings on an empty data dir."""
    return system.settings.model_copy(update={"data_dir": tmp_path / "elsewhere"})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "backup"


def test_what_is_pushed_after_a_restore_is_newer_than_what_was_there(
    system: Stepped, elsewhere: Settings, folder: Path
) -> None:
    """Also on a machine whose clock is behind: stream ids decide between revisions."""
    first = turn("first form", 0).to_json()
    system.client.xadd(system.keys.stream("live"), {b"event": first}, id="9999999999999-0")
    system.settle()
    make_backup(system.settings, folder)
    restore_backup(elsewhere, folder)
    with embedded_redis(elsewhere):
        restored = Stepped(elsewhere)
        restored.push(turn("second form", 0))
        restored.settle()
    assert [content for content, _ in ask(elsewhere, "form")] == ["second form"]


def test_what_is_spooled_comes_back_once_and_behind_what_is_on_the_stream(
    system: Stepped, elsewhere: Settings, folder: Path
) -> None:
    spool = Spool(system.settings, "live")
    sent = turn("spooled and sent", 1)
    spool.append([sent.to_json(), turn("spooled", 0).to_json()], "a test")
    (path,) = spool.paths()
    _, _, first = next(spool_records(system.settings))
    # The sender died between its transaction and the note in its file: only Redis knows that the first one is sent.
    stream = system.keys.stream("live")
    system.client.xadd(stream, {b"event": turn("on the stream", 0).to_json()})
    system.client.xadd(stream, {b"event": sent.to_json()})
    system.client.set(Keys(system.settings.key_prefix).spool_mark(path.name), first.end)
    made = make_backup(system.settings, folder)
    assert made.manifest.on_the_way.spooled == {"live": 1, "backfill": 0}
    restore_backup(elsewhere, folder)
    assert spooled(elsewhere).events == 0, "it was sent"
    with embedded_redis(elsewhere):
        restored = Stepped(elsewhere)
        assert restored.left()[0] == 3
        restored.settle()
    assert sorted(content for content, _ in ask(elsewhere, "spooled")) == ["spooled", "spooled and sent"]


def test_what_was_forgotten_is_not_in_a_backup_and_stays_forgotten(
    system: Stepped, elsewhere: Settings, folder: Path
) -> None:
    system.push(turn("kestrel secret", 0, tenant="acme"), turn("heron", 0))
    system.settle()
    late = turn("kestrel late", 1, tenant="acme")
    forget(system.settings, Selection("acme", None, None, None))
    made = make_backup(system.settings, folder)
    assert made.manifest.turns == 1
    restore_backup(elsewhere, folder)
    for path in [*folder.rglob("*"), *elsewhere.data_dir.rglob("*")]:
        assert not path.is_file() or b"kestrel" not in path.read_bytes(), path
    with embedded_redis(elsewhere):
        restored = Stepped(elsewhere)
        # What another machine had in its spool when it was forgotten is dropped when it arrives.
        restored.client.xadd(restored.keys.stream("live"), {b"event": late.to_json(), b"accepted": 1})
        restored.settle()
        assert restored.counts() == (1, 1, 1)


def test_a_place_that_is_not_empty_is_refused_by_name_and_left_as_it_is(
    system: Stepped, elsewhere: Settings, folder: Path, tmp_path: Path
) -> None:
    system.push(turn("heron", 0))
    system.settle()
    make_backup(system.settings, folder)
    restore_backup(elsewhere, folder)
    other = tmp_path / "other.db"
    for changes, reason in (
        ({}, f"there is a catalog at {elsewhere.data_dir / 'catalog.db'}"),
        ({"catalog_url": f"sqlite:///{other}"}, f"there are vectors at {elsewhere.data_dir / 'vectors'}"),
        ({"data_dir": tmp_path / "third", "redis_url": system.settings.redis_location}, "is not empty"),
    ):
        system.push(turn("kestrel", 1))
        with pytest.raises(UsageError, match=reason):
            restore_backup(elsewhere.model_copy(update=changes), folder)
    assert not other.exists()
    assert not elsewhere.restore_mark.exists()
    with embedded_redis(elsewhere):
        assert Stepped(elsewhere).counts() == (1, 1, 1)


def _flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def _newer(folder: Path, **fields: object) -> None:
    body = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps(body | fields))


DAMAGE: list[tuple[str, Callable[[Path], None], str]] = [
    ("no manifest", lambda folder: (folder / "manifest.json").unlink(), "is not a backup"),
    ("a manifest with a flipped bit", lambda folder: _flip(folder / "manifest.json"), "is damaged"),
    ("a later format", lambda folder: _newer(folder, format=2, program="9.9"), "use version 9.9 or later"),
    ("a catalog with a flipped bit", lambda folder: _flip(folder / "catalog.db"), "catalog.db is damaged: its SHA-256"),
    ("a missing file", lambda folder: (folder / "streams/live.msgpack").unlink(), "live.msgpack is missing"),
    (
        "a truncated file",
        lambda folder: (folder / "catalog.db").write_bytes((folder / "catalog.db").read_bytes()[:-1]),
        "catalog.db is damaged: .* bytes of",
    ),
]


def test_a_damaged_backup_is_refused_in_one_line_and_nothing_is_done(
    system: Stepped, elsewhere: Settings, folder: Path, tmp_path: Path
) -> None:
    system.push(turn("heron", 0))
    make_backup(system.settings, folder)
    for name, damage, reason in DAMAGE:
        copy = tmp_path / name.replace(" ", "_")
        shutil.copytree(folder, copy)
        damage(copy)
        for attempt in (lambda copy=copy: check_backup(copy), lambda copy=copy: restore_backup(elsewhere, copy)):
            with pytest.raises(BadBackup, match=reason) as refused:
                attempt()
            assert "\n" not in str(refused.value), name
    assert not elsewhere.data_dir.exists()


def test_a_restore_that_fails_leaves_nothing_and_can_be_repeated(
    system: Stepped, elsewhere: Settings, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    system.push(turn("heron", 0))
    system.settle()
    system.push(turn("kestrel", 1))
    make_backup(system.settings, folder)
    before = everything(system.settings)

    def fail(*_: object) -> None:
        raise StoreUnavailable("the disk is full")

    with monkeypatch.context() as patched:
        patched.setattr("workers.backup.catalog_copy.restore_catalog", fail)
        with pytest.raises(StoreUnavailable, match="the disk is full"):
            restore_backup(elsewhere, folder)
    assert not elsewhere.restore_mark.exists()
    restore_backup(elsewhere, folder)
    with embedded_redis(elsewhere):
        assert everything(elsewhere) == before


def test_an_interrupted_restore_starts_anew_in_the_same_place_only(
    system: Stepped, elsewhere: Settings, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    system.push(turn("heron", 0))
    system.settle()
    system.push(turn("kestrel", 1))
    make_backup(system.settings, folder)

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        # A kill takes nothing away: vectors, streams and the mark stay as they are.
        patched.setattr("workers.backup.catalog_copy.restore_catalog", killed)
        patched.setattr("workers.backup.catalog_copy.clear_catalog", lambda _: (_ for _ in ()).throw(OSError()))
        with pytest.raises(KeyboardInterrupt):
            restore_backup(elsewhere, folder)
    assert elsewhere.restore_mark.exists()
    with pytest.raises(UsageError, match="restore with the same settings again"):
        restore_backup(elsewhere.model_copy(update={"catalog_url": f"sqlite:///{tmp_path}/other.db"}), folder)
    restore_backup(elsewhere, folder)
    assert not elsewhere.restore_mark.exists()
    with embedded_redis(elsewhere):
        assert everything(elsewhere) == everything(system.settings)


def test_a_place_for_a_backup_that_is_in_use_is_refused(system: Stepped, folder: Path, tmp_path: Path) -> None:
    folder.mkdir()
    (folder / "note.txt").write_text("mine")
    with pytest.raises(UsageError, match="is not empty"):
        make_backup(system.settings, folder)
    (tmp_path / "link").symlink_to(tmp_path)
    with pytest.raises(UsageError, match="is a link or a mount point"):
        make_backup(system.settings, tmp_path / "link")
    with partial_folder(tmp_path / "third"), pytest.raises(Busy, match="another backup is being written"):
        make_backup(system.settings, tmp_path / "third")
    (tmp_path / "into").symlink_to(system.settings.data_dir)
    for inside in (system.settings.data_dir / "backups" / "monday", tmp_path / "into" / "monday"):
        with pytest.raises(UsageError, match="no forget could be proven"):
            make_backup(system.settings, inside)
        assert not inside.exists()
    with pytest.raises(NotReady, match="no catalog at"):
        make_backup(system.settings.model_copy(update={"data_dir": tmp_path / "nothing"}), tmp_path / "fourth")
    assert [path.name for path in folder.iterdir()] == ["note.txt"]


def test_files_are_for_their_user_only_and_an_empty_folder_is_taken(system: Stepped, folder: Path) -> None:
    system.push(turn("heron", 0))
    system.settle()
    folder.mkdir()
    make_backup(system.settings, folder)
    assert {path.stat().st_mode & 0o077 for path in [folder, *folder.rglob("*")]} == {0}
    assert list(folder.parent.glob("*.partial")) == []


def test_a_backup_that_fails_leaves_nothing(system: Stepped, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("workers.backup.on_the_way.sync", fail)
    with pytest.raises(NotReady, match="No space left on device; nothing of it is left there"):
        make_backup(system.settings, folder)
    assert list(folder.parent.glob("backup*")) == []


def test_without_redis_the_stores_are_copied_and_it_says_what_is_missing(
    settings: Settings, tmp_path: Path, folder: Path
) -> None:
    with embedded_redis(settings):
        system = Stepped(settings)
        system.push(turn("heron", 0))
        system.settle()
        system.push(turn("kestrel on its way", 1))
    with EventStream(settings) as stream:
        stream.append([turn("spooled", 2)])
    made = make_backup(settings, folder)
    assert made.problem is not None
    assert made.problem.startswith("turns that wait on the streams, and dead letters, are not in this backup: no Redis")
    assert check_backup(folder).on_the_way.streams is None
    elsewhere = settings.model_copy(update={"data_dir": tmp_path / "elsewhere"})
    restore_backup(elsewhere, folder)
    with embedded_redis(elsewhere):
        restored = Stepped(elsewhere)
        restored.settle()
        assert restored.counts() == (2, 2, 2)


def test_a_catalog_that_is_written_all_the_while_is_copied_as_of_one_moment(system: Stepped, folder: Path) -> None:
    """Each step of the copy is followed by a write, which a copy that starts anew at every change would never end."""
    system.push(*(turn(f"heron{number} " * 200, number) for number in range(300)))
    system.settle()
    later = iter(range(1000, 2000))

    def write(step: str, done: int, total: int) -> None:
        if step in ("copying the catalog", "copying the vectors"):
            system.push(turn("kestrel", next(later)))
            system.settle()

    made = make_backup(system.settings, folder, write)
    assert next(later) > 1001, "it was written to meanwhile"
    assert (made.manifest.turns, made.manifest.spaces[0].rows) == (300, made.manifest.chunks)
    with closing(Catalog.open(folder / "catalog.db")) as catalog:
        assert catalog.counts().turns == 300
