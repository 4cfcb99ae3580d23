"""kill -9 of whoever compacts or indexes, at random moments: every row is there once, and the next run finishes."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from producers.connection import connect
from producers.settings import Settings
from table_under_load import SPACE, Load, key_of, rows, session_of, tenant_of
from workers.maintenance import compact, index, lease
from workers.maintenance.run import run_job
from workers.stores.catalog import Catalog
from workers.stores.lance_schema import VECTOR
from workers.stores.scope import Scope
from workers.stores.spaces import StoredSpace
from workers.stores.vectors import VectorStore

pytestmark = [pytest.mark.faults, pytest.mark.timeout(240)]

KILLS = 3
SEED = 20_272
BATCH = 40
FIRST = 1_200
"""Rows before the first kill; each kill finds `MORE` new ones."""
MORE = 400
LEASE_SECONDS = 1.0
THRESHOLDS = {
    "compact.MAX_FRAGMENTS": 8,
    "index.MIN_UNINDEXED": 100,
    "index.SCALAR_INDEX_MIN_ROWS": 500,
    "index.VECTOR_INDEX_MIN_BYTES": 1_000 * 64 * 4,
}
PROCESS = """
import json, sys
from producers.connection import connect
from producers.settings import load_settings
from workers.maintenance import compact, index, lease
from workers.maintenance.run import run_job
from workers.stores.vectors import VectorStore
for name, value in json.loads(sys.argv[2]).items():
    module, _, constant = name.partition(".")
    setattr({"compact": compact, "index": index}[module], constant, value)
lease.LEASE_SECONDS = float(sys.argv[3])
settings = load_settings()
VectorStore(settings.vectors_location).connect()
with connect(settings) as client:
    print("begin", flush=True)
    run_job(sys.argv[1], settings, client, patience=10)
"""


@pytest.fixture(autouse=True)
def low_thresholds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "LEASE_SECONDS", LEASE_SECONDS)
    for name, value in THRESHOLDS.items():
        module, _, constant = name.partition(".")
        monkeypatch.setattr({"compact": compact, "index": index}[module], constant, value)


@pytest.fixture
def load(live_settings: Settings) -> Load:
    catalog = Catalog.open(live_settings.catalog_location, create=True)
    catalog.spaces.adopt(StoredSpace(SPACE, "hashing", None))
    catalog.close()
    load = Load(VectorStore(live_settings.vectors_location))
    load.append(FIRST, BATCH)
    load.change(random.Random(1), 100, 100, BATCH)
    return load


def seconds_of(name: str, settings: Settings, tmp_path: Path) -> float:
    """How long the job takes on a copy when nobody disturbs it."""
    copy = settings.model_copy(update={"data_dir": tmp_path / "copy", "redis_url": settings.redis_location})
    copy.data_dir.mkdir()
    shutil.copytree(settings.data_dir / "vectors", copy.data_dir / "vectors")
    shutil.copy(settings.data_dir / "catalog.db", copy.data_dir)
    started = time.monotonic()
    with connect(copy) as client:
        assert run_job(name, copy, client, patience=10).outcome == "done"
    return time.monotonic() - started


@pytest.mark.parametrize("name", ["compact", "index"])
def test_a_job_that_is_killed_is_finished_by_the_next_run(
    name: str, live_settings: Settings, load: Load, tmp_path: Path
) -> None:
    rng = random.Random(f"{SEED} {name}")
    longest = seconds_of(name, live_settings, tmp_path)
    command = [sys.executable, "-c", PROCESS, name, json.dumps(THRESHOLDS), str(LEASE_SECONDS)]
    environment = os.environ | live_settings.as_environment()
    for _ in range(KILLS):
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"begin\n"
            time.sleep(rng.uniform(0, longest))
            process.kill()
        load.append(MORE, BATCH)
        assert sorted(load.store.keys(SPACE)) == load.keys
    with connect(live_settings) as client:
        while run_job(name, live_settings, client, patience=10).did:  # what it began with is done by the first run
            pass

    assert sorted(load.store.keys(SPACE)) == load.keys
    if name == "compact":
        assert load.store.statistics(SPACE).fragments <= THRESHOLDS["compact.MAX_FRAGMENTS"]
    else:
        indexes = load.store.indexes(SPACE)
        assert indexes.keys() == {"terms", VECTOR, *index.SCALAR_COLUMNS}
        assert max(one.unindexed_rows for one in indexes.values()) <= load.written * index.MAX_UNINDEXED_SHARE
    catalog = Catalog.open(live_settings.catalog_location)
    outcomes = [run.outcome for run in catalog.runs.history(name)]
    measured = catalog.spaces.search(SPACE).recall
    catalog.close()
    assert outcomes[0] == "nothing"
    assert None not in outcomes
    assert (measured is None) == (name == "compact")
    for number in (0, 50, load.written - BATCH):
        found = load.store.dense(SPACE, rows([number])[0].vector, Scope(tenant_of(number)), 20)
        assert key_of(number) in {one.vector_id for one in found}
        in_session = Scope(tenant_of(number), sessions=(session_of(number),))
        assert [one.vector_id for one in load.store.lexical(SPACE, f"needle{number}q", in_session, 5)] == [
            key_of(number)
        ]
