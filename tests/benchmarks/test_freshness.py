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
PAUSE = 0.5
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
            time.sleep(PAUSE)
            loaded.append(seconds_to_recall(settings, catalog, 1000 + len(loaded)))
        seconds = time.monotonic() - started
        assert importing.wait(60) == 0
        assert importing.stdout is not None
        importing.stdout.close()
        assert catalog.counts().turns == OLD_TURNS + 1 + IDLE_TURNS + len(loaded)
    for name, figure in (
        ("median", statistics.median),
        ("90th percentile", lambda v: statistics.quantiles(v, n=10)[8]),
    ):
        print(
            f"\nlive turn, {name}: idle {1000 * figure(idle):.0f} ms, during a backfill of {OLD_TURNS:,} "
            f"({OLD_TURNS / seconds:.0f} turns/s) {1000 * figure(loaded):.0f} ms, ratio {figure(loaded) / figure(idle):.2f}"
        )
