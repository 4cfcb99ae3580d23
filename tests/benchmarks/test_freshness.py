"""How soon a live turn can be recalled while old transcripts are imported, against an idle system. Prints the ratio."""

from __future__ import annotations

import json
import statistics
import time
from contextlib import closing
from pathlib import Path

import pytest
from test_throughput import turns, up

from producers.events import TurnEvent
from producers.settings import Settings, load_settings
from producers.stream import EventStream
from system import Cli
from workers.stores.catalog import Catalog
from workers.stores.tables import INDEXED

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(1800)]

OLD_TURNS = 50_000
IDLE_TURNS = 40
PAUSES = (0.5, 0.2, 0.05, 0.0)
"""Seconds between two live turns: an agent that thinks, and one that hurries."""
POLL = 0.002


def seconds_to_recall(settings: Settings, catalog: Catalog, number: int) -> float:
    """From the push of one live turn until recall can return it."""
    event = TurnEvent(
        tenant="live", session_id="live", turn_index=number, role="user", content=f"live turn {number}: the heron waits"
    )
    started = time.perf_counter()
    with EventStream(settings) as stream:
        stream.append([event])
    while True:
        known = catalog.known([event.key]).get(event.key)
        if known is not None and known.state == INDEXED:
            return time.perf_counter() - started
        time.sleep(POLL)


def test_live_turns_during_a_backfill(tmp_path: Path) -> None:
    settings = load_settings(data_dir=tmp_path / "data", reranker="none")
    old = tmp_path / "old.jsonl"
    with old.open("w", encoding="utf-8") as file:
        for event in turns(OLD_TURNS, "old"):
            file.write(json.dumps(event.model_dump(mode="json", exclude_defaults=True)) + "\n")
    cli = Cli(settings.data_dir, {"SCOPE_RECALL_EMBEDDER": "minilm"})
    with up(settings), closing(Catalog.open(settings.catalog_location)) as catalog:
        seconds_to_recall(settings, catalog, 0)
        idle = [seconds_to_recall(settings, catalog, 1 + n) for n in range(IDLE_TURNS)]
        importing = cli.start("backfill", str(old), "--json")
        loaded: list[float] = []
        started = time.monotonic()
        while catalog.counts().turns - IDLE_TURNS - len(loaded) < OLD_TURNS:
            time.sleep(PAUSES[len(loaded) % len(PAUSES)])
            loaded.append(seconds_to_recall(settings, catalog, 1000 + len(loaded)))
        seconds = time.monotonic() - started
        assert importing.wait(60) == 0
        assert importing.stdout is not None
        importing.stdout.close()
        assert catalog.counts().turns == OLD_TURNS + 1 + IDLE_TURNS + len(loaded)
    print(f"\na backfill of {OLD_TURNS:,} turns, {OLD_TURNS / seconds:.0f} a second; a live turn can be recalled after")
    for name, figure in (("median", statistics.median), ("90th percentile", ninetieth), ("longest", max)):
        before, during = 1000 * figure(idle), 1000 * figure(loaded)
        print(f"{name}: idle {before:.0f} ms, during it {during:.0f} ms, ratio {during / before:.2f}")


def ninetieth(values: list[float]) -> float:
    return statistics.quantiles(values, n=10)[8]
