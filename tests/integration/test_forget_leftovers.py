"""What a kill or Redis itself would leave of what is forgotten: half-written files, deleted entries, half a proof."""

from __future__ import annotations

import pytest
from bytes_left import holding

from producers.connection import connect
from producers.keys import Keys
from producers.settings import Settings
from stepped import Stepped, turn
from workers.maintenance import erasure_proof as proof
from workers.maintenance.forget import forget
from workers.stores.selection import Selection
from workers.supervision.redis_server import embedded_redis, redis_dir

pytestmark = pytest.mark.integration

GONE = Selection("acme", "gone")
HALF = ("temp-rewriteaof-4711.aof", "temp-rewriteaof-bg-4711.aof", "temp-4711.rdb")


def leave_half_files(settings: Settings) -> None:
    for name in HALF:
        (redis_dir(settings) / name).write_text("the kestrel4711quartz flew")


def test_a_half_written_file_of_a_killed_redis_is_deleted(live_settings: Settings) -> None:
    system = Stepped(live_settings)
    system.push(turn("the kestrel4711quartz flew", tenant="acme", session_id="gone"))
    system.settle()
    leave_half_files(live_settings)
    assert holding(live_settings, "kestrel4711quartz")
    report = forget(live_settings, GONE)
    assert (report.verified, report.problems) == (True, ())
    assert holding(live_settings, "kestrel4711quartz") == []


def test_a_redis_that_starts_deletes_what_the_one_before_left_half_written(settings: Settings) -> None:
    with embedded_redis(settings):
        pass
    leave_half_files(settings)
    with embedded_redis(settings):
        assert not [path for path in redis_dir(settings).iterdir() if path.name in HALF]


def test_a_deleted_entry_stays_in_no_key_though_its_neighbours_wait(live_settings: Settings) -> None:
    system = Stepped(live_settings)
    for number in range(20):
        system.push(turn(f"heron{number}basalt", number, tenant="acme", session_id="keep"))
        system.push(turn(f"kestrel{number}quartz", number, tenant="acme", session_id="gone"))
    report = forget(live_settings, GONE)
    assert (report.on_their_way, report.verified) == (20, True)
    with connect(live_settings) as client:
        dumped: bytes = client.dump(Keys(live_settings.key_prefix).stream("live"))
    assert b"heron7basalt" in dumped
    assert b"quartz" not in dumped
    system.settle()
    assert system.counts() == (20, 20, 20)


def test_a_kill_while_the_pieces_are_written_leaves_those_from_before(settings: Settings) -> None:
    settings.data_dir.mkdir()
    proof.keep(settings, 7, ["the kestrel4711quartz flew"])
    before = proof.load(settings, 7)
    assert before
    unfinished = settings.data_dir / proof.FOLDER / "7.new"
    unfinished.write_text('[["half')
    assert proof.load(settings, 7) == before
    proof.keep(settings, 7, ["a heron42basalt stood"])
    assert set(proof.load(settings, 7) or ()) > set(before)
    unfinished.write_text('[["half')
    proof.discard(settings, [7])
    assert list((settings.data_dir / proof.FOLDER).iterdir()) == []
