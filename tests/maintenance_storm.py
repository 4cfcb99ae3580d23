"""A table that is filled, changed and asked while another process compacts and indexes it; then an exact look at it."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from table_under_load import SPACE, Load, asking, disk_bytes, own_size
from workers.maintenance import compact
from workers.stores.lance_schema import VECTOR
from workers.stores.vectors import VectorStore

KEEP_SECONDS = 1
DISK_FACTOR = 1.3
LEAST_QUESTIONS = 20


@dataclass(frozen=True)
class Storm:
    """How much there is of everything."""

    rows: int
    batch: int
    """Rows of one write, which is one fragment."""
    changed: int
    """Rows that are rewritten, and as many that are deleted."""
    meanwhile: int
    """Rows written while maintenance goes on."""
    thresholds: dict[str, int]


def weather(storm: Storm, folder: Path) -> list[dict[str, Any]]:
    """Go through the storm; returns what maintenance said. Fails where anything is missing, wrong or too large."""
    location = str(folder / "vectors")
    load = Load(VectorStore(location))
    load.append(storm.batch, storm.batch)
    said: list[dict[str, Any]] = []
    with asking(location, load) as asked:
        load.append(storm.rows - storm.batch, storm.batch)
        load.change(random.Random(3), storm.changed, storm.changed, storm.batch)
        before = load.store.statistics(SPACE)
        writing = threading.Thread(target=load.append, args=(storm.meanwhile, storm.batch))
        writing.start()
        said += maintain(location, storm.thresholds)
        writing.join()
        said += maintain(location, storm.thresholds)
    assert asked.errors == []
    assert asked.missing == []
    assert asked.questions > LEAST_QUESTIONS

    after = load.store.statistics(SPACE)
    fragments = max(
        storm.thresholds.get("compact.MAX_FRAGMENTS", compact.MAX_FRAGMENTS), after.rows // compact.ROWS_PER_FRAGMENT
    )
    assert before.fragments > fragments >= after.fragments
    assert sorted(load.store.keys(SPACE)) == load.keys
    assert VECTOR in load.store.indexes(SPACE)
    size, alone = disk_bytes(location), own_size(load.store, folder / "fresh")
    assert size <= DISK_FACTOR * alone, f"{size:,} bytes for {alone:,} of rows and indexes"
    print(
        f"\n{after.rows:,} rows: {before.fragments} fragments became {after.fragments}; {size / alone:.2f} times the "
        f"data's own {alone / (1 << 20):.1f} MiB on disk; {asked.questions:,} questions answered meanwhile"
    )
    for line in said:
        if line["did"]:
            print(f"{line['job']}: {line['did']} ({line['seconds']} s, peak {line['peak_mib']} MiB)")
    return said


def maintain(location: str, thresholds: dict[str, int]) -> list[dict[str, Any]]:
    """Both jobs in a process of their own until nothing is left to do; what it said."""
    script = Path(__file__).parent / "maintenance_process.py"
    command = [sys.executable, str(script), location, str(KEEP_SECONDS), json.dumps(thresholds)]
    path = os.pathsep.join([str(script.parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path}, check=False, timeout=1800
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]
