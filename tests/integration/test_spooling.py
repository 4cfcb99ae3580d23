"""Redis away: what is appended meanwhile arrives when it returns, in order, once, whoever dies in between."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

import spool_producer
from producers.connection import connect
from producers.errors import SpoolFull, StreamUnavailable
from producers.events import TurnEvent, parse_event
from producers.keys import EVENT_FIELD, Keys
from producers.settings import Settings
from producers.spool import spooled
from producers.spool_file import SpoolFile
from producers.stream import EventStream
from stepped import Stepped, turn
from workers.progress import read_progress
from workers.status import gather_status
from workers.stores.catalog import Catalog
from workers.supervision.redis_server import embedded_redis

pytestmark = pytest.mark.integration


def on_stream(settings: Settings) -> list[TurnEvent]:
    """The events on the live stream, in order."""
    with connect(settings) as client:
        entries = client.xrange(Keys(settings.key_prefix).stream("live"))
    return [parse_event(fields[EVENT_FIELD], settings) for _, fields in entries]


def contents(settings: Settings) -> list[str]:
    return [event.content for event in on_stream(settings)]


def left_behind(settings: Settings, *batches: Sequence[TurnEvent]) -> None:
    """Appends of a process that ran while Redis was away, and is gone."""
    with EventStream(settings) as stream:
        for batch in batches:
            stream.append(batch)
    assert stream.spooled().events == sum(map(len, batches))


@contextmanager
def producers(settings: Settings, sessions: Sequence[str], *options: str) -> Iterator[list[subprocess.Popen[str]]]:
    script = str(Path(spool_producer.__file__))
    paths = os.pathsep.join([str(Path(script).parent), str(Path(script).parent.parent)])
    running = [
        subprocess.Popen(
            [sys.executable, "-P", script, str(settings.data_dir), session, *options],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": paths},
        )
        for session in sessions
    ]
    try:
        yield running
    finally:
        for process in running:
            process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()


def wait_for(condition: object, seconds: float = 15.0) -> None:
    assert callable(condition)
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited for too long"
        time.sleep(0.05)


def test_an_agent_that_starts_while_redis_is_down_loses_no_turn_and_hardly_waits(settings: Settings) -> None:
    with EventStream(settings) as stream:
        started = time.monotonic()
        assert stream.append(turn(f"turn {n}", n) for n in range(1200)) == 1200
        assert time.monotonic() - started < 3
        assert stream.spooled().events == 1200
        assert "no Redis at" in stream.away
        with embedded_redis(settings):
            time.sleep(1.1)  # Redis is not asked again for a second
            stream.append([turn("after", 5000)])
            assert stream.spooled().events == 0
            assert stream.away == ""
            assert contents(settings) == [*(f"turn {n}" for n in range(1200)), "after"]
    assert spooled(settings).files == 0


def test_an_agent_that_says_nothing_more_has_its_spool_sent_when_redis_returns(settings: Settings) -> None:
    with EventStream(settings) as stream:
        stream.append([turn("last words")])
        with embedded_redis(settings):
            wait_for(lambda: contents(settings) == ["last words"])


def test_what_a_dead_process_left_goes_before_what_the_next_one_appends(settings: Settings) -> None:
    left_behind(settings, [turn("old", 0)], [turn("old too", 1)])
    with embedded_redis(settings):
        with EventStream(settings) as stream:
            stream.append([turn("new", 0)])
        assert contents(settings) == ["old", "old too", "new"]
        system = Stepped(settings)
        system.settle()
        assert system.counts() == (2, 2, 2)
        assert sorted(Catalog.open(settings.catalog_location).recent_contents(5)) == ["new", "old too"]


def test_intake_sends_what_a_command_left_behind(settings: Settings) -> None:
    left_behind(settings, [turn(f"turn {n}", n) for n in range(10)])
    with embedded_redis(settings):
        assert read_progress(settings).waiting == 10, "drain waits for what is spooled"
        system = Stepped(settings)
        system.settle()
        assert system.counts() == (10, 10, 10)
        assert read_progress(settings).waiting == 0


def test_a_sender_that_dies_between_redis_and_its_file_is_not_repeated(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    left_behind(settings, [turn("first"), turn("second")])
    with embedded_redis(settings):

        def die(file: SpoolFile, offset: int) -> None:
            raise KeyboardInterrupt

        with monkeypatch.context() as patched:
            patched.setattr("producers.spool_file.SpoolFile.advance", die)
            stream = EventStream(settings)
            with pytest.raises(KeyboardInterrupt):
                stream.send_spooled()
        with EventStream(settings.model_copy(update={"spool": False})) as elsewhere:
            elsewhere.append([turn("third")])
        assert stream.send_spooled()
        stream.close()
        assert contents(settings) == ["first", "second", "third"], "sent twice, an old revision would win"


def test_many_senders_at_once_send_each_event_once_and_in_order(settings: Settings) -> None:
    left_behind(settings, *[[turn(f"turn {n}", n) for n in range(k, k + 100)] for k in range(0, 3000, 100)])
    with embedded_redis(settings):
        streams = [EventStream(settings) for _ in range(4)]
        threads = [threading.Thread(target=stream.send_spooled) for stream in streams]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for stream in streams:
            stream.close()
        assert contents(settings) == [f"turn {n}" for n in range(3000)]


def test_at_high_water_the_spool_waits_and_new_turns_go_behind_it(settings: Settings) -> None:
    left_behind(settings, [turn(f"turn {n}", n) for n in range(5)])
    settings = settings.model_copy(update={"high_water": 3})
    with embedded_redis(settings), connect(settings) as client, EventStream(settings) as stream:
        for n in range(3):
            client.xadd(Keys(settings.key_prefix).stream("live"), {EVENT_FIELD: turn(f"there {n}", n).to_json()})
        started = time.monotonic()
        assert stream.append([turn("behind", 9)]) == 1
        assert time.monotonic() - started < 1
        assert stream.spooled().events == 1
        for expected in ([f"turn {n}" for n in range(5)], ["behind"]):
            client.delete(Keys(settings.key_prefix).stream("live"))
            wait_for(lambda expected=expected: contents(settings) == expected)


def test_a_full_spool_names_redis_and_what_is_safe(settings: Settings) -> None:
    with EventStream(settings.model_copy(update={"spool_bytes": 2000})) as stream:
        stream.append([turn("kept")])
        with pytest.raises(SpoolFull, match=r"no Redis at .* spool_bytes is 2,000\. What was accepted before is safe"):
            stream.append([turn("x" * 3000, 1)])
        assert stream.spooled().events == 1


def test_a_wrong_password_is_an_error_and_no_reason_to_spool(settings: Settings) -> None:
    with embedded_redis(settings), connect(settings) as client:
        client.config_set("requirepass", "right")
        wrong = settings.model_copy(update={"redis_url": f"unix://:wrong@{settings.redis_socket}"})
        with EventStream(wrong) as stream, pytest.raises(StreamUnavailable, match="invalid username-password pair"):
            stream.append([turn("hello")])
        assert spooled(wrong).files == 0
        client.config_set("requirepass", "")


def test_status_tells_what_is_spooled_and_for_which_other_redis(settings: Settings) -> None:
    left_behind(settings, [turn("a"), turn("b", 1)])
    left_behind(settings.model_copy(update={"redis_url": "redis://127.0.0.1:1/0"}), [turn("c")])
    status = gather_status(settings)
    assert (status["spool"]["files"], status["spool"]["events"]) == (1, 2)
    degraded = " ".join(status["degraded"])
    assert "2 accepted turns wait" in degraded
    assert "1 accepted turns wait" in degraded
    assert "for another Redis (redis://127.0.0.1:1/0, key prefix scope-recall)" in degraded


def test_turns_behind_damage_are_sent_and_status_tells_what_to_push_again(settings: Settings) -> None:
    left_behind(settings, [turn(f"turn {n}", n) for n in range(1200)])
    (path,) = (settings.data_dir / "spool").iterdir()
    path.write_bytes(path.read_bytes().replace(b"turn 500", b"turn 5x0"))
    with embedded_redis(settings):
        system = Stepped(settings)
        system.settle()
        assert system.counts() == (1199, 1199, 1199)
        assert spooled(settings).files == 0
        (said,) = [line for line in gather_status(settings)["degraded"] if "could not be read" in line]
        assert re.match(rf"\d+ bytes of {path}\.damaged could not be read: the turns in them were accepted", said)
        system.push(*[turn(f"turn {n}", n) for n in range(1200)])
        system.settle()
        assert system.counts() == (1200, 1200, 1200)


def test_a_producer_killed_in_the_middle_of_appends_loses_only_the_append_that_had_not_returned(
    settings: Settings,
) -> None:
    returned = []
    for session in ("a", "b", "c"):
        with producers(settings, [session], "--batch", "7") as (process,):
            assert process.stdout is not None
            lines = [process.stdout.readline() for _ in range(20)]
            process.send_signal(signal.SIGKILL)
            rest, _ = process.communicate()
            whole = (rest if rest.endswith("\n") else rest.rpartition("\n")[0]).split()
            returned.append(int([*lines, *whole][-1]))
    with embedded_redis(settings):
        system = Stepped(settings)
        system.step()
        arrived = on_stream(settings)
        for session, count in zip("abc", returned, strict=True):
            indexes = [event.turn_index for event in arrived if event.session_id == session]
            assert indexes == list(range(len(indexes)))
            assert count <= len(indexes) <= count + 7
        system.settle()
        assert system.counts()[0] == len(arrived)
        assert system.left() == (0, 0)
    assert spooled(settings).files == 0


def test_redis_stopped_in_the_middle_of_four_producers_stores_each_turn_once_and_in_order(settings: Settings) -> None:
    sessions = [f"session {n}" for n in range(4)]
    with producers(settings, sessions, "--turns", "200", "--pause", "0.01") as running:
        with embedded_redis(settings):
            wait_for(lambda: len(on_stream(settings)) > 100)
        wait_for(lambda: spooled(settings).events > 100)
        with embedded_redis(settings):
            for process in running:
                process.communicate(timeout=30)
                assert process.returncode == 0
            with EventStream(settings) as stream:
                assert stream.send_spooled()
            arrived = on_stream(settings)
            for session in sessions:
                indexes = [event.turn_index for event in arrived if event.session_id == session]
                assert list(dict.fromkeys(indexes)) == list(range(200)), "in order; one cut off by the stop may repeat"
            system = Stepped(settings)
            system.settle()
            assert system.counts() == (800, 800, 800)
            assert system.left() == (0, 0)
    assert spooled(settings).files == 0
