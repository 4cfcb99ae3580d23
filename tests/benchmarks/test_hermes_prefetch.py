"""How long a Hermes turn waits for recall while several sessions ask at once, and how often it gets any.

With default models. Each session asks as Hermes makes it: one question, then a pause in which the model answers. First
each at its own moments, then all at the same moment, which is the worst that sessions can do. A wait that brings
nothing is no memory: most turns must get a block, however busy the machine is, and wait no longer than the budget.
"""

from __future__ import annotations

import json
import os
import random
import statistics
import threading
import time
from pathlib import Path

import pytest
from test_throughput import turns

from producers.events import TurnEvent
from producers.hermes.identity import memory_of
from producers.hermes.provider import ScopeRecallProvider
from producers.hermes.settings import save
from producers.settings import load_settings
from producers.stream import EventStream
from system import Cli, stop, up

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(1800)]

SESSIONS = 8
STORED_TURNS = 3_000
QUESTIONS = 12
BUDGET_MS = 1500
LEAST_BLOCKS = 0.5
"""Of the turns; on an idle machine it is all of them, and what a busy one does to it is printed."""
LATE_MS = 250
"""Beyond the budget, for a thread that wakes late on a busy machine."""
PAUSE = 2.0
"""Seconds that the model takes to answer; a fast one."""


def test_prefetch_of_sessions_at_once(tmp_path: Path) -> None:
    settings = load_settings(data_dir=tmp_path / "data")
    home = tmp_path / "home"
    save({"data_dir": str(settings.data_dir), "budget_ms": BUDGET_MS}, home)
    tenant = memory_of(home, "", {}).tenant
    cli = Cli(settings.data_dir, {"SCOPE_RECALL_EMBEDDER": settings.embedder, "SCOPE_RECALL_RERANKER": "auto"})
    with up(cli):
        with EventStream(settings) as stream:
            stream.append(event.model_copy(update={"tenant": tenant}) for event in turns(STORED_TURNS, "bench"))
        assert cli.run("drain", "--timeout", "900", timeout=1000).code == 0
        service = cli.start("serve", "--port", "0", "--json")
        assert service.stdout is not None
        while not (line := service.stdout.readline()).startswith(b'{"url"'):
            assert line, "serve ended"
        save({"url": json.loads(line)["url"]}, home)
        try:
            sessions = [_session(home, number) for number in range(SESSIONS)]
            time.sleep(15)  # what `initialize` asks has loaded the models
            for together in (False, True):
                _measure(sessions, list(turns(400, "asked")), together)
            for session in sessions:
                session.shutdown()
        finally:
            assert stop(service) == 0


def _session(home: Path, number: int) -> ScopeRecallProvider:
    provider = ScopeRecallProvider()
    provider.initialize(f"session-{number}", hermes_home=str(home), platform="cli")
    return provider


def _measure(sessions: list[ScopeRecallProvider], asked: list[TurnEvent], together: bool) -> None:
    seconds: list[float] = []
    found: list[bool] = []
    barrier = threading.Barrier(len(sessions))

    def talk(number: int) -> None:
        chosen = random.Random(number)
        time.sleep(chosen.uniform(0, PAUSE))
        for _ in range(QUESTIONS):
            question = " ".join(chosen.choice(asked).content.split()[:12])
            if together:
                barrier.wait()
            started = time.perf_counter()
            block = sessions[number].prefetch(question)
            seconds.append(time.perf_counter() - started)
            found.append(bool(block))
            time.sleep(PAUSE)

    threads = [threading.Thread(target=talk, args=(number,)) for number in range(SESSIONS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    cuts = statistics.quantiles([1000 * one for one in seconds], n=20)
    print(
        f"\n{SESSIONS} sessions, {'all at the same moment' if together else 'each at its own moments'}, {PAUSE:g} s "
        f"between two turns, {STORED_TURNS:,} turns stored: "
        f"prefetch p50 {cuts[9]:.0f} ms, p95 {cuts[18]:.0f} ms, longest {1000 * max(seconds):.0f} ms; "
        f"{sum(found)} of {len(found)} turns got a block within {BUDGET_MS} ms; load {os.getloadavg()[0]:.1f}"
    )
    assert sum(found) >= LEAST_BLOCKS * len(found)
    assert cuts[18] <= BUDGET_MS + LATE_MS
