"""How fast pushed turns become recallable, against what the encoder alone could do. Prints, asserts exact counts.

Both figures of a ratio are taken in one run: machines differ, and one machine differs from minute to minute.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from producers.events import TurnEvent
from producers.settings import Settings, load_settings
from producers.stream import EventStream
from workers.commands.up import share_cores
from workers.embedding.batch import embed_unique
from workers.embedding.registry import load_embedder
from workers.progress import read_progress
from workers.supervision.child import default_specs
from workers.supervision.supervisor import Supervisor

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(900)]

WORDS = (
    "the agent deploys a service after review and reports that port latency rose because cache misses doubled while "
    "disk usage stayed flat so we moved traffic back to the old region and opened a ticket for the storage team to "
    "look at replication lag on the orders database before the next release window closes on friday evening"
).split()
ENCODER_TURNS = 2_000
FREE_TURNS = 20_000
ROUNDS = 3


def turns(count: int, session: str) -> list[TurnEvent]:
    """Turns of about 300 characters, no two alike."""
    rng = random.Random(session)
    return [
        TurnEvent(
            tenant="bench",
            session_id=session,
            turn_index=number,
            role="user",
            content=f"{number} " + " ".join(rng.choices(WORDS, k=rng.randint(20, 80)))[: rng.randint(200, 400)],
        )
        for number in range(count)
    ]


@contextmanager
def up(settings: Settings) -> Iterator[Supervisor]:
    share_cores(settings.workers)
    settings = settings.model_copy(update={"serve": False})
    with Supervisor(settings, default_specs(settings)) as supervisor:
        supervisor.wait_ready(180)
        yield supervisor


def push_to_recallable(settings: Settings, supervisor: Supervisor, events: list[TurnEvent]) -> float:
    """Seconds from the first append until every turn is stored and indexed."""
    before = read_progress(settings).turns
    started = time.perf_counter()
    with EventStream(settings) as stream:
        stream.append(events)
        while stream.backlog().length:
            supervisor.poll()
            time.sleep(0.01)
    seconds = time.perf_counter() - started
    progress = read_progress(settings)
    assert (progress.turns, progress.waiting) == (before + len(events), 0)
    return seconds


def test_push_to_recallable_against_the_bare_encoder(tmp_path: Path) -> None:
    settings = load_settings(data_dir=tmp_path / "data", embedder="minilm", reranker="none")
    embedder = load_embedder("minilm", settings)
    embed_unique(embedder, [event.content for event in turns(64, "warm-up")])
    ratios = []
    with up(settings) as supervisor:
        push_to_recallable(settings, supervisor, turns(64, "warm-up"))
        for number in range(ROUNDS):
            events = turns(ENCODER_TURNS, f"round {number}")
            started = time.perf_counter()
            embed_unique(embedder, [event.content for event in events])
            bare = time.perf_counter() - started
            path = push_to_recallable(settings, supervisor, events)
            ratios.append(bare / path)
            print(
                f"\nround {number + 1}: bare encoder {ENCODER_TURNS / bare:,.0f} turns/s, "
                f"push to recallable {ENCODER_TURNS / path:,.0f} turns/s, ratio {bare / path:.2f}"
            )
    print(f"median ratio {statistics.median(ratios):.2f} (wanted: at least .80)")


@pytest.mark.parametrize("workers", [1, 2])
def test_the_path_with_an_encoder_that_costs_nothing(tmp_path: Path, workers: int) -> None:
    settings = load_settings(data_dir=tmp_path / "data", embedder="hashing", reranker="none", workers=workers)
    with up(settings) as supervisor:
        push_to_recallable(settings, supervisor, turns(256, "warm-up"))
        seconds = push_to_recallable(settings, supervisor, turns(FREE_TURNS, "burst"))
    print(f"\n{workers} worker(s): {FREE_TURNS / seconds:,.0f} turns/s end to end (wanted: at least 2,000)")
