"""A damaged spool file: what can be read is sent, what cannot is kept aside and told."""

from __future__ import annotations

import fcntl
import json
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from producers.settings import Settings, load_settings
from producers.spool import Spool, damaged, erase_spooled, spooled, spooled_for_others
from producers.spool_file import ERASED, HEADER, encode, locked, whole
from spool_sender import held, send


def damage_at(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


FIVE = [b'{"content":"number %d"}' % n for n in range(5)]


@given(st.lists(st.tuples(st.text(), st.sampled_from([0, 1_800_000_000_000, ERASED])), min_size=1), st.data())
def test_whatever_a_byte_is_damaged_to_all_other_records_are_found(
    records: list[tuple[str, int]], data: st.DataObject
) -> None:
    """An erased one is zeros."""
    payloads = [bytes(9) if moment == ERASED else json.dumps(text).encode() for text, moment in records]
    encoded = [encode(payload, moment) for payload, (_, moment) in zip(payloads, records, strict=True)]
    hit = data.draw(st.integers(0, len(encoded) - 1))
    damaged_one = bytearray(encoded[hit])
    damaged_one[data.draw(st.integers(0, len(damaged_one) - 1))] ^= data.draw(st.integers(1, 255))
    found = [record.payload for record in whole(b"".join([*encoded[:hit], damaged_one, *encoded[hit + 1 :]]), 0)]
    assert found == payloads[:hit] + payloads[hit + 1 :]


@pytest.mark.parametrize("part", [0, 4, 8, 16, 30], ids="length checksum moment payload last".split())
def test_damage_loses_the_record_it_is_in_and_the_file_is_kept_aside(settings: Settings, part: int) -> None:
    spool = Spool(settings, "live")
    spool.append(FIVE, "away")
    (path,) = spool.paths()
    one = len(encode(FIVE[0]))
    damage_at(path, path.stat().st_size - 4 * one + part)
    content = path.read_bytes()
    assert spooled(settings).events == 4
    assert send(spool, 9) == [FIVE[0], *FIVE[2:]]
    assert spool.paths() == []
    aside = path.with_name(path.name + ".damaged")
    assert aside.read_bytes()[HEADER.size :] == content[HEADER.size :]
    (said,) = damaged(settings)
    assert f"{one} bytes of {aside} could not be read" in said
    spool.append([b"later"], "away")
    assert held(spool) == [b"later"], "in a new file"


@pytest.mark.parametrize("at", [0, 9, 15], ids=["magic", "offset", "highest byte"])
def test_a_damaged_header_keeps_no_event_from_being_sent(settings: Settings, at: int) -> None:
    spool = Spool(settings, "live")
    spool.append(FIVE, "away")
    damage_at(spool.paths()[0], at)
    assert send(spool, 9)[-4:] == FIVE[-4:]


def test_a_damaged_destination_keeps_no_event_from_being_sent_or_shown(tmp_path: Path) -> None:
    here, there = load_settings(data_dir=tmp_path), load_settings(data_dir=tmp_path, key_prefix="other")
    spool = Spool(there, "live")
    spool.append(FIVE, "away")
    (path,) = spool.paths()
    damage_at(path, HEADER.size + 20)
    assert spooled_for_others(here) == {f"its address in {path.name} is damaged": 5}
    assert send(spool, 9) == FIVE


def test_a_last_append_cut_short_behind_whole_ones_is_no_damage(settings: Settings) -> None:
    spool = Spool(settings, "live")
    spool.append(FIVE, "away")
    (path,) = spool.paths()
    os.truncate(path, path.stat().st_size - 3)
    assert send(spool, 9) == FIVE[:-1]
    assert damaged(settings) == list(spool.folder.iterdir()) == []


@pytest.mark.parametrize("sent", [0, 9], ids=["before it is sent", "when it is kept aside"])
def test_a_forget_overwrites_what_is_in_a_damaged_file_readable_or_not(settings: Settings, sent: int) -> None:
    spool = Spool(settings, "live")
    spool.append(FIVE, "away")
    (path,) = spool.paths()
    damage_at(path, path.stat().st_size - 3 * len(encode(FIVE[0])) - 2)
    if sent:
        send(spool, sent)
    assert erase_spooled(settings, lambda record: record.payload == FIVE[3]) == (0 if sent else 1)
    (path,) = spool.folder.iterdir()
    left = [number for number in range(5) if b"number %d" % number in path.read_bytes()]
    assert left == [0, 2, 4], "the damaged one is gone too: nobody can tell whose it is"
    assert held(spool) == ([] if sent else [FIVE[0], FIVE[2], FIVE[4]])


def test_an_append_that_waited_while_its_file_was_kept_aside_starts_a_new_one(settings: Settings) -> None:
    spool = Spool(settings, "live")
    spool.append([b"x" * 30, b"y"], "away")
    (path,) = spool.paths()
    damage_at(path, path.stat().st_size - len(encode(b"y")) - 1)
    with ThreadPoolExecutor(1) as pool, locked(path) as file:
        assert file is not None
        waiting = pool.submit(spool.append, [b"late"], "away")
        time.sleep(0.2)
        file.remove()
        fcntl.flock(file._descriptor, fcntl.LOCK_UN)
        waiting.result()
    assert held(spool) == [b"late"]
