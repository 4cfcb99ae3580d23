"""The spool's files: what an append returned is there after any crash, in order, and nothing else is."""

from __future__ import annotations

import errno
import os
import stat
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from limits import largest_file
from producers.errors import SpoolFull, StreamUnavailable
from producers.settings import Settings, load_settings
from producers.spool import SEGMENT_BYTES, Spool, Spooled, spooled, spooled_for_others
from producers.spool_file import decode, encode, locked
from spool_sender import held, send

PAYLOADS = st.lists(st.binary(min_size=1, max_size=40), min_size=1, max_size=5)
DISK = hypothesis_settings(deadline=None, max_examples=50)
"""An fsync takes as long as it takes."""
APPENDS = st.lists(PAYLOADS, max_size=8)


@given(st.lists(st.binary(min_size=1, max_size=60), max_size=20), st.data())
def test_records_cut_at_any_byte_are_the_whole_ones_before_the_cut(payloads: list[bytes], data: st.DataObject) -> None:
    encoded = [encode(payload) for payload in payloads]
    whole = b"".join(encoded)
    cut = data.draw(st.integers(0, len(whole)))
    found = [record.payload for record in decode(whole[:cut])]
    assert found == payloads[: len(found)]
    length = sum(len(one) for one in encoded[: len(found)])
    assert length <= cut
    assert cut == len(whole) or cut < length + len(encoded[len(found)])


@given(st.lists(st.binary(min_size=1, max_size=60), min_size=1, max_size=10), st.data())
def test_a_damaged_byte_is_never_taken_for_an_event(payloads: list[bytes], data: st.DataObject) -> None:
    whole = bytearray(b"".join(map(encode, payloads)))
    whole[data.draw(st.integers(0, len(whole) - 1))] ^= data.draw(st.integers(1, 255))
    found = [record.payload for record in decode(bytes(whole))]
    assert len(found) < len(payloads)
    assert found == payloads[: len(found)]


@pytest.mark.parametrize("tail", [b"\0" * 64, b"\1", b"\xff" * 20, encode(b"x")[:-1]])
def test_what_a_power_loss_leaves_behind_the_last_event_is_no_event(tail: bytes) -> None:
    assert [record.payload for record in decode(encode(b"event") + tail)] == [b"event"]


@DISK
@given(st.lists(st.one_of(PAYLOADS, st.integers(1, 6)), max_size=12), PAYLOADS, st.data())
def test_after_a_crash_at_any_byte_the_returned_appends_that_were_not_sent_are_there_in_order(
    steps: list[list[bytes] | int], last: list[bytes], data: st.DataObject
) -> None:
    """A step is an append, or a sender that takes some events; at the end the process is killed in an append."""
    with tempfile.TemporaryDirectory() as folder:
        settings = load_settings(data_dir=Path(folder))
        spool = Spool(settings, "live")
        expected: list[bytes] = []
        for step in steps:
            if isinstance(step, int):
                sent = send(spool, step)
                assert sent == expected[: len(sent)]
                expected = expected[len(sent) :]
            else:
                spool.append(step, "away")
                expected += step
        before = {path: path.stat().st_size for path in spool.paths()}
        spool.append(last, "away")
        (grown,) = [path for path in spool.paths() if path.stat().st_size != before.get(path)]
        os.truncate(grown, data.draw(st.integers(before.get(grown, 0), grown.stat().st_size)))
        found = held(Spool(settings, "live"))
        assert found[: len(expected)] == expected
        rest = found[len(expected) :]
        assert rest == last[: len(rest)], "of the append that did not return, at most its first events are there"


@DISK
@given(APPENDS, APPENDS)
def test_what_a_dead_process_left_comes_before_what_a_later_one_spools(
    first: list[list[bytes]], second: list[list[bytes]]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        settings = load_settings(data_dir=Path(folder))
        for appends in (first, second):
            spool = Spool(settings, "live")
            for payloads in appends:
                spool.append(payloads, "away")
        assert held(spool) == [payload for payloads in (*first, *second) for payload in payloads]


def test_a_file_that_was_sent_and_deleted_meanwhile_is_followed_by_a_new_one(settings: Settings) -> None:
    spool = Spool(settings, "live")
    spool.append([b"one"], "away")
    assert send(spool, 5) == [b"one"]
    assert spool.own() == Spooled()
    spool.append([b"two"], "away")
    assert held(spool) == [b"two"]


def test_a_large_spool_is_several_files_so_that_space_returns_while_it_is_sent(settings: Settings) -> None:
    spool = Spool(settings, "live")
    big = [b"x" * (SEGMENT_BYTES // 2)]
    for _ in range(6):
        spool.append(big, "away")
    assert spooled(settings).files == 3
    send(spool, 2)
    assert (spooled(settings).files, spooled(settings).events) == (2, 4)


def test_the_clock_set_back_does_not_change_the_order(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    spool = Spool(settings, "live")
    times = iter([2_000, 1_000])
    monkeypatch.setattr("producers.spool.time.time_ns", lambda: next(times))
    for payload in (b"a" * SEGMENT_BYTES, b"b"):
        spool.append([payload], "away")
    assert [payload[:1] for payload in held(spool)] == [b"a", b"b"]


def test_at_its_bound_the_spool_refuses_all_of_an_append_and_keeps_what_it_has(settings: Settings) -> None:
    settings = settings.model_copy(update={"spool_bytes": 1000})
    spool = Spool(settings, "live")
    spool.append([b"kept"], "Redis is away")
    with pytest.raises(SpoolFull) as caught:
        spool.append([b"x" * 500, b"y" * 500], "Redis is away")
    assert str(caught.value).startswith("Redis is away; and the spool in")
    assert "spool_bytes is 1,000" in str(caught.value)
    assert "What was accepted before is safe" in str(caught.value)
    spool.append([b"small"], "Redis is away")
    assert held(spool) == [b"kept", b"small"]


def test_the_bound_counts_what_other_processes_and_lanes_spooled(settings: Settings) -> None:
    settings = settings.model_copy(update={"spool_bytes": 1000})
    Spool(settings, "backfill").append([b"x" * 600], "away")
    with pytest.raises(SpoolFull):
        Spool(settings, "live").append([b"x" * 600], "away")


@pytest.mark.parametrize("room", [0, 50, 400])
def test_a_full_disk_is_a_typed_error_and_the_spool_stays_valid(settings: Settings, room: int) -> None:
    spool = Spool(settings, "live")
    kept = [b"k" * 100] if room == 400 else []
    if kept:
        spool.append(kept, "away")
    with largest_file(room), pytest.raises(SpoolFull, match="cannot be written: File too large"):
        spool.append([b"x" * 200, b"y" * 200], "away")
    assert held(spool) == kept
    spool.append([b"after"], "away")
    assert held(spool) == [*kept, b"after"]


def test_a_failed_fsync_is_no_accepted_append(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    spool = Spool(settings, "live")
    spool.append([b"kept"], "away")

    def fail(descriptor: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patched:
        patched.setattr("producers.spool_file.os.fsync", fail)
        with pytest.raises(StreamUnavailable, match="Input/output error"):
            spool.append([b"lost"], "away")
    spool.append([b"more"], "away")
    assert held(spool) == [b"kept", b"more"]


def test_a_data_dir_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    spool = Spool(load_settings(data_dir=tmp_path / "file"), "live")
    with pytest.raises(StreamUnavailable, match=r"no Redis.*cannot be written: (Not a directory|File exists)"):
        spool.append([b"event"], "no Redis")


def test_only_its_user_can_read_the_spool(settings: Settings) -> None:
    before = os.umask(0)
    try:
        spool = Spool(settings, "live")
        spool.append([b"private"], "away")
    finally:
        os.umask(before)
    (path,) = spool.paths()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(spool.folder.stat().st_mode) == 0o700


def test_a_fork_writes_a_file_of_its_own(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    spool = Spool(settings, "live")
    spool.append([b"parent"], "away")
    monkeypatch.setattr("producers.spool.os.getpid", lambda: 1)  # as after a fork; a real one warns under threads
    spool.append([b"child"], "away")
    assert [len(path.name.split("-")) for path in spool.paths()] == [5, 5]
    assert held(spool) == [b"parent", b"child"]
    assert spool.own().events == 1, "the parent's are the parent's"


def test_threads_share_a_file_without_losing_anything(settings: Settings) -> None:
    spool = Spool(settings, "live")
    payloads = [[f"{thread}:{n}".encode() for n in range(20)] for thread in range(4)]
    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(lambda mine=mine: [spool.append([one], "away") for one in mine]) for mine in payloads]:
            done.result()
    found = held(spool)
    assert [[one for one in found if one.startswith(b"%d:" % thread)] for thread in range(4)] == payloads
    assert spooled(settings).files == 1


def test_what_is_meant_for_another_redis_is_not_ours_to_send_and_is_shown_without_its_password(tmp_path: Path) -> None:
    here = load_settings(data_dir=tmp_path)
    there = load_settings(data_dir=tmp_path, redis_url="redis://user:hunter2@cache.example:6379/0", key_prefix="other")
    Spool(there, "live").append([b"a", b"b"], "away")
    assert Spool(here, "live").paths() == []
    assert spooled(here) == Spooled()
    assert spooled_for_others(here) == {"redis://user:***@cache.example:6379/0, key prefix other": 2}
    assert spooled_for_others(there) == {}
    assert spooled(there).events == 2
    assert b"hunter2" not in b"".join(path.read_bytes() for path in Spool(there, "live").paths())


def test_figures_count_what_is_not_sent_yet(settings: Settings) -> None:
    spool = Spool(settings, "live")
    spool.append([b"12345", b"67890"], "away")
    with locked(spool.paths()[0]) as file:
        assert file is not None
        file.advance(file.unsent()[0].end)
    assert spooled(settings) == spool.own() == Spooled(files=1, events=1, bytes=len(encode(b"67890")))
