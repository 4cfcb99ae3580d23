"""Stopping `up` in the middle of a batch that takes minutes: the worker gives it back in time, and nothing is lost."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest
from known_turns import known_turn

from embedding_service import Answer, running_service
from producers.connection import connect
from producers.keys import GROUP, Keys
from producers.settings import load_settings
from producers.stream import EventStream
from system import Cli
from workers.supervision.redis_server import embedded_redis
from workers.supervision.supervisor import GRACE

pytestmark = [pytest.mark.faults, pytest.mark.timeout(180)]

TURNS = 200
SECONDS_A_TEXT = 0.4
"""All the turns together take longer than four times the grace."""
PARTS = 4
"""Requests after which the worker is in the middle of its batch, at a part of about the length that it aims at."""
WAIT = 60.0


def test_a_worker_that_is_stopped_in_a_long_batch_gives_it_back_within_its_grace(tmp_path: Path) -> None:
    def slowly(texts: list[str]) -> Answer | None:
        time.sleep(SECONDS_A_TEXT * len(texts))
        return None

    with running_service() as service:
        cli = Cli(tmp_path / "data", {"SCOPE_RECALL_EMBEDDER": "openai:test", "SCOPE_RECALL_EMBEDDER_URL": service.url})
        settings = load_settings(data_dir=cli.data_dir)
        up = cli.start("up", "--json")
        cli.wait_ready(up)
        service.behave = slowly
        service.sizes.clear()
        with EventStream(settings) as stream:
            stream.append(known_turn(number) for number in range(TURNS))
        deadline = time.monotonic() + WAIT
        while len(service.sizes) < PARTS:
            assert time.monotonic() < deadline, service.sizes
            time.sleep(0.05)

        asked = time.monotonic()
        up.send_signal(signal.SIGTERM)
        out, _ = up.communicate(timeout=WAIT)
        took = time.monotonic() - asked
        assert up.returncode == 0
        assert '"worker-1", "event": "stopped"' in out.decode(), "it was not killed"
        assert took < GRACE
        assert sum(service.sizes) < TURNS, "the batch was not finished"

        with embedded_redis(settings), connect(settings) as client:
            pending = client.xpending_range(Keys(settings.key_prefix).stream("live"), GROUP, "-", "+", TURNS)
        assert len(pending) == TURNS
        assert {row["times_delivered"] for row in pending} == {0}, "giving back is no failed delivery"
